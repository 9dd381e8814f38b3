"""Random transactions of a shop's applications, repeatable by a seed.

An operation is one transaction: a list of statements that can be executed again after a deadlock. With one seed, a
writer always executes the same operations in the same order. Each writer uses its own ids, so that no two writers
insert the same key; but all writers update the rows of `warehouse.stock`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from deploy.demo.schema import SITES

PRODUCTS = 60  # of each writer, inserted before the load begins
_IDS_PER_WRITER = 1_000_000
_NAMES = (
    "Åse",
    "Bjørn",
    "Chloë",
    "Dvořák",
    "Ειρήνη",
    "Фёдор",
    "さくら",
    "🦊 Fox",
    "O'Neil",
    'Quo"te',
    "back\\slash",
)


@dataclass(frozen=True, slots=True)
class Statement:
    sql: str
    values: Sequence[Any] = ()


@dataclass(slots=True)
class Transaction:
    """A transaction. `done` is called after its commit. With `undo` it is rolled back, so it must not be mirrored."""

    statements: list[Statement]
    done: Callable[[], None] = lambda: None
    undo: bool = False


@dataclass(slots=True)
class Shop:
    """The rows of one writer, and its random generator."""

    writer: int
    chance: random.Random
    customers: list[int] = field(default_factory=list)
    products: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)  # in the order of their ids
    parts: int = 1_000_000  # rows of warehouse.parts at the beginning
    _next: int = 0

    def new_id(self) -> int:
        self._next += 1
        return (self.writer + 1) * _IDS_PER_WRITER + self._next

    def some(self, ids: list[int], most: int) -> list[int]:
        return sorted(self.chance.sample(ids, min(len(ids), self.chance.randint(1, most))))


# -- values --------------------------------------------------------------------------------------------------


def _maybe(chance: random.Random, value: Any) -> Any:
    return None if chance.random() < 0.2 else value


def _text(chance: random.Random, longest: int) -> str:
    return " ".join(chance.choice(_NAMES) for _ in range(chance.randint(0, longest)))


def _moment(chance: random.Random) -> datetime:
    edges = (datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7))  # noqa: DTZ001 - of TIMESTAMP, UTC
    if chance.random() < 0.02:
        return chance.choice(edges)
    return datetime(2026, 1, 1) + timedelta(microseconds=chance.randrange(10**13))  # noqa: DTZ001


def _day(chance: random.Random) -> date:
    if chance.random() < 0.02:
        return chance.choice((date(1000, 1, 1), date(9999, 12, 31), date(2024, 2, 29)))
    return date(1950, 1, 1) + timedelta(days=chance.randrange(40000))


def _double(chance: random.Random) -> float:
    if chance.random() < 0.05:
        return chance.choice((0.0, 1.7976931348623157e308, 2.2250738585072014e-308, -1 / 3, 1e22))
    return chance.uniform(-1e6, 1e6)


def _decimal(chance: random.Random, digits: int, scale: int) -> Decimal:
    return Decimal(chance.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale)


def _rows(table: str, columns: str, rows: Sequence[Sequence[Any]]) -> Statement:
    """One INSERT of several rows."""
    row_values = f"({', '.join(['%s'] * len(rows[0]))})"
    values = [value for row in rows for value in row]
    return Statement(
        f"INSERT INTO {table} ({columns}) VALUES {', '.join([row_values] * len(rows))}", values
    )


def _in(ids: Sequence[int]) -> str:
    return f"({', '.join(map(str, ids))})"


# -- operations ----------------------------------------------------------------------------------------------


def first_stock(shop: Shop) -> Transaction:
    """Insert the products of a writer, and their stock at each site."""
    chance = shop.chance
    # Every second id uses all 64 bits.
    ids = [shop.new_id() + (2**63 if n % 2 else 0) for n in range(PRODUCTS)]
    products = [
        (id_, f"SKU{id_ % 10**9:09}", _maybe(chance, _text(chance, 6)), _decimal(chance, 9, 4))
        + (_maybe(chance, _decimal(chance, 38, 18)), _maybe(chance, _double(chance)))
        + (_maybe(chance, chance.randint(-32768, 32767)),)
        + (_maybe(chance, chance.randbytes(chance.choice((0, 1, 300, 2000)))),)
        + (chance.choice(("new", "listed", "sold out", "på lager")), _moment(chance))
        + (_maybe(chance, _day(chance)),)
        for id_ in ids
    ]
    stock = [
        (site, id_, chance.randint(0, 500), _maybe(chance, 5)) for id_ in ids for site in SITES
    ]
    columns = "id, sku, title, price, factor, weight, margin, picture, state, added, released"
    return Transaction(
        [
            _rows("shop.products", columns, products),
            _rows("warehouse.stock", "site, product, quantity, minimum", stock),
        ],
        lambda: shop.products.extend(ids),
    )


def new_customers(shop: Shop, count: int | None = None) -> Transaction:
    chance = shop.chance
    ids = [shop.new_id() for _ in range(count or chance.choice((1, 1, 3, 10, 40)))]
    rows = [
        (id_, f"c{id_}@example.org", _maybe(chance, _text(chance, 3)), chance.randint(-128, 127))
        + (_maybe(chance, chance.randrange(1 << 24)), _decimal(chance, 12, 2))
        + (_maybe(chance, _double(chance)), _maybe(chance, _day(chance)))
        + (_maybe(chance, _text(chance, 60)), chance.randbytes(16), _moment(chance))
        + (_maybe(chance, _moment(chance)),)
        for id_ in ids
    ]
    columns = "id, email, name, level, visits, balance, score, birthday, notes, token, joined, seen"
    return Transaction([_rows("shop.customers", columns, rows)], lambda: shop.customers.extend(ids))


def place_order(shop: Shop) -> Transaction:
    """Insert into all three databases."""
    chance = shop.chance
    order = shop.new_id()
    lines = [
        (order, line, product, chance.randint(1, 9), _decimal(chance, 9, 4))
        + (_maybe(chance, chance.randrange(2)),)
        for line, product in enumerate(shop.some(shop.products, 6))
    ]
    total = _decimal(chance, 14, 2)
    head = (order, chance.choice(shop.customers), "open", total, _moment(chance))
    site = chance.choice(SITES)
    taken = _in([line[2] for line in lines])
    document = _maybe(chance, chance.randbytes(chance.choice((10, 300, 2000))))
    invoice = (f"inv-{order}", order, total, _day(chance), document)
    moves = [
        (chance.randbytes(16), site, line[2], -line[3], _moment(chance))
        + (_maybe(chance, _text(chance, 4)), _maybe(chance, chance.randbytes(chance.randrange(65))))
        for line in lines
    ]
    comment = _maybe(chance, _text(chance, 20))
    return Transaction(
        [
            _rows("shop.orders", "id, customer, state, total, placed, comment", [(*head, comment)]),
            _rows("shop.order_lines", "`order`, line, product, quantity, price, gift", lines),
            Statement(
                "UPDATE warehouse.stock SET quantity = quantity - 1, counted = NOW()"
                f" WHERE site = %s AND product IN {taken}",
                (site,),
            ),
            _rows("warehouse.movements", "id, site, product, quantity, at, remark, label", moves),
            _rows("billing.invoices", "number, `order`, amount, issued, document", [invoice]),
        ],
        lambda: shop.orders.append(order),
        undo=chance.random() < 0.05,
    )


def pay(shop: Shop) -> Transaction:
    """Insert payments; a trigger updates their invoices."""
    chance = shop.chance
    rows = [
        (f"inv-{order}", _decimal(chance, 20, 6), chance.choice(("card", "transfer", "gift card")))
        + (_moment(chance), _maybe(chance, _double(chance)))
        for order in shop.some(shop.orders, 5)
    ]
    return Transaction([_rows("billing.payments", "invoice, amount, method, booked, rate", rows)])


def settle(shop: Shop) -> Transaction:
    """Update rows of two databases in one statement."""
    orders = _in(shop.some(shop.orders, 20))
    return Transaction(
        [
            Statement(
                "UPDATE shop.orders o JOIN billing.invoices i ON i.`order` = o.id SET o.state = 'paid',"
                " o.total = o.total + 0.01, i.amount = i.amount * 1.000001, i.paid = NOW(6)"
                f" WHERE o.id IN {orders}"
            )
        ]
    )


def send(shop: Shop) -> Transaction:
    """Update rows of two databases in one statement; some rows change in one database only."""
    orders = _in(shop.some(shop.orders, 10))
    return Transaction(
        [
            Statement(
                "UPDATE shop.orders o JOIN shop.order_lines l ON l.`order` = o.id JOIN warehouse.stock s"
                " ON s.product = l.product AND s.site = 'OSL' SET o.state = 'sent', o.sent = NOW(6),"
                f" l.gift = NULL, s.quantity = s.quantity - l.quantity WHERE o.id IN {orders}"
            )
        ]
    )


def cancel(shop: Shop) -> Transaction:
    """Delete orders with their invoices in one statement; a foreign key deletes their lines."""
    orders = shop.some(shop.orders, 4)

    def done() -> None:
        shop.orders = [order for order in shop.orders if order not in orders]

    # The statement uses no aliases, because MySQL resolves an alias after DELETE only in the default database.
    delete = (
        "DELETE shop.orders, billing.invoices FROM shop.orders JOIN billing.invoices"
        f" ON billing.invoices.`order` = shop.orders.id WHERE shop.orders.id IN {_in(orders)}"
    )
    return Transaction([Statement(delete)], done)


def rename(shop: Shop) -> Transaction:
    """Change the key of a customer, give its old key to a new customer, and change the keys of order lines."""
    old, new = shop.chance.choice(shop.customers), shop.new_id()
    again = new_customers(shop, 1).statements[0]
    order = shop.chance.choice(shop.orders)
    return Transaction(
        [
            Statement(f"UPDATE shop.customers SET id = {new} WHERE id = {old}"),
            Statement(again.sql, [old, *again.values[1:]]),
            # Change the keys in descending order, so that no new key equals a key that still exists.
            Statement(
                f"UPDATE shop.order_lines SET line = line + 1 WHERE `order` = {order} ORDER BY line DESC"
            ),
        ],
        lambda: shop.customers.append(new),
    )


def reprice(shop: Shop) -> Transaction:
    chance = shop.chance
    products = _in(shop.some(shop.products, 30))
    return Transaction(
        [
            Statement(
                "UPDATE shop.products SET price = %s, margin = margin DIV 2, picture = %s, weight = weight / 3,"
                f" state = 'listed' WHERE id IN {products}",
                (_decimal(chance, 10, 4), _maybe(chance, chance.randbytes(200))),
            )
        ]
    )


def forget(shop: Shop) -> Transaction:
    gone = shop.some(shop.customers, 8)

    def done() -> None:
        shop.customers = [customer for customer in shop.customers if customer not in gone]

    return Transaction([Statement(f"DELETE FROM shop.customers WHERE id IN {_in(gone)}")], done)


def use_parts(shop: Shop) -> Transaction:
    """Change rows of the table that the mirror copies at this time: updates, a deletion, new rows, and a changed
    key."""
    chance = shop.chance
    # Each writer has its own ids, so that no key is inserted twice.
    own = range(shop.writer + 1, shop.parts + 1, 3)
    used = _in(sorted(chance.choice(own) for _ in range(20)))
    new = shop.parts + shop.new_id()
    columns = "id, code, title, stock, price, weight, added, counted, changed, state"
    row = [new, f"N{new}", _maybe(chance, _text(chance, 4)), chance.randint(0, 99)]
    row += [_decimal(chance, 10, 2), _maybe(chance, _double(chance)), _day(chance), None]
    row += [_moment(chance), "new"]
    return Transaction(
        [
            Statement(
                f"UPDATE warehouse.parts SET stock = stock - 1, state = 'used' WHERE id IN {used}"
            ),
            Statement(f"DELETE FROM warehouse.parts WHERE id = {chance.choice(own)}"),
            _rows("warehouse.parts", columns, [row]),
            Statement(
                f"UPDATE warehouse.parts SET id = {new + 10**8} WHERE id = {chance.choice(own)}"
            ),
        ]
    )


_OPERATIONS: tuple[tuple[Callable[[Shop], Transaction], int], ...] = (
    (place_order, 40),
    (new_customers, 12),
    (pay, 10),
    (settle, 8),
    (send, 8),
    (cancel, 6),
    (rename, 6),
    (reprice, 5),
    (forget, 5),
    (use_parts, 10),
)


def first_rows(shop: Shop) -> Iterator[Transaction]:
    """Insert rows into nearly all tables. The caller executes each transaction before it asks for the next one."""
    yield first_stock(shop)
    yield new_customers(shop, 30)
    for _ in range(10):
        yield place_order(shop)
    yield pay(shop)


def operations(shop: Shop) -> Iterator[Transaction]:
    """Yields operations without end. The caller executes each operation before it asks for the next one."""
    kinds, weights = zip(*_OPERATIONS, strict=True)
    while True:
        (make,) = shop.chance.choices(kinds, weights)
        enough = len(shop.orders) > 20 and len(shop.customers) > 20
        yield (make if enough else shop.chance.choice((place_order, new_customers)))(shop)
