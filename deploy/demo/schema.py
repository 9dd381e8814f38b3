"""The tables of a shop in three databases, with every supported column type, NULLs, and several kinds of keys.

Keys: small integers, integers beyond the signed range, text, binary, and two keys of two columns. The deletion of an
order deletes its lines by a foreign key, which the server logs as rows; a payment updates its invoice by a trigger.
"""

from __future__ import annotations

DATABASES = ("shop", "billing", "warehouse")

SITES = ("OSL", "BGO", "TRD", "TOS")

STATEMENTS = (
    *(f"CREATE DATABASE {database}" for database in DATABASES),
    """CREATE TABLE shop.customers (
        id INT UNSIGNED NOT NULL PRIMARY KEY, email VARCHAR(120) NOT NULL, name VARCHAR(80), level TINYINT NOT NULL,
        visits MEDIUMINT UNSIGNED, balance DECIMAL(12,2) NOT NULL, score DOUBLE, birthday DATE, notes TEXT,
        token BINARY(16) NOT NULL, joined TIMESTAMP(6) NOT NULL, seen DATETIME(3))""",
    """CREATE TABLE shop.products (
        id BIGINT UNSIGNED NOT NULL PRIMARY KEY, sku CHAR(12) NOT NULL, title VARCHAR(200),
        price DECIMAL(10,4) NOT NULL, factor DECIMAL(38,18), weight DOUBLE, margin SMALLINT, picture BLOB,
        state ENUM('new','listed','sold out','på lager') NOT NULL, added DATETIME NOT NULL, released DATE)""",
    """CREATE TABLE shop.orders (
        id BIGINT NOT NULL PRIMARY KEY, customer INT UNSIGNED NOT NULL,
        state ENUM('open','paid','sent','returned') NOT NULL, total DECIMAL(14,2) NOT NULL,
        placed TIMESTAMP(3) NOT NULL, sent DATETIME(6), comment TEXT)""",
    """CREATE TABLE shop.order_lines (
        `order` BIGINT NOT NULL, line SMALLINT UNSIGNED NOT NULL, product BIGINT UNSIGNED NOT NULL,
        quantity INT NOT NULL, price DECIMAL(10,4) NOT NULL, gift BOOL, PRIMARY KEY (`order`, line),
        FOREIGN KEY (`order`) REFERENCES shop.orders (id) ON DELETE CASCADE)""",
    """CREATE TABLE billing.invoices (
        number VARCHAR(40) NOT NULL PRIMARY KEY, `order` BIGINT NOT NULL, amount DECIMAL(20,6) NOT NULL,
        issued DATE NOT NULL, paid TIMESTAMP(6) NULL, document MEDIUMBLOB, KEY (`order`))""",
    """CREATE TABLE billing.payments (
        id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, invoice VARCHAR(40) NOT NULL, amount DECIMAL(20,6) NOT NULL,
        method ENUM('card','transfer','gift card') NOT NULL, booked DATETIME(6) NOT NULL, rate DOUBLE)""",
    """CREATE TRIGGER billing.booked AFTER INSERT ON billing.payments FOR EACH ROW
        UPDATE billing.invoices SET paid = NEW.booked WHERE number = NEW.invoice""",
    """CREATE TABLE warehouse.stock (
        site CHAR(3) NOT NULL, product BIGINT UNSIGNED NOT NULL, quantity INT NOT NULL, minimum SMALLINT,
        counted TIMESTAMP NULL, PRIMARY KEY (site, product))""",
    """CREATE TABLE warehouse.movements (
        id BINARY(16) NOT NULL PRIMARY KEY, site CHAR(3) NOT NULL, product BIGINT UNSIGNED NOT NULL,
        quantity MEDIUMINT NOT NULL, at DATETIME(6) NOT NULL, remark VARCHAR(200), label VARBINARY(64))""",
)

# A table whose rows are not in the binlog (they are written with sql_log_bin=0), so the mirror gets them only by a
# copy.
EXISTING = "warehouse.parts"
EXISTING_TABLE = (
    """CREATE TABLE warehouse.parts (
        id INT UNSIGNED NOT NULL PRIMARY KEY, code CHAR(12) NOT NULL, title VARCHAR(80), stock INT NOT NULL,
        price DECIMAL(10,2) NOT NULL, weight DOUBLE, added DATE NOT NULL, counted DATETIME(3),
        changed TIMESTAMP(6) NOT NULL, state ENUM('new','used','worn') NOT NULL)""",
    """INSERT INTO warehouse.parts VALUES
        (1, 'P1', 'part 1', 100, 1.25, 0.1, '2020-01-01', NULL, '2024-02-29 12:00:00.000001', 'new')""",
)
# Repeated until there are enough rows: each statement doubles the table.
DOUBLE_EXISTING_TABLE = """INSERT INTO warehouse.parts
    SELECT id + {rows}, CONCAT('P', id + {rows}), IF(id % 7 = 0, NULL, CONCAT('part ', id + {rows})),
        stock + id % 13, price + id % 97, weight * 1.000001 + id, added + INTERVAL id % 900 DAY,
        IF(id % 3 = 0, NULL, '2024-01-01' + INTERVAL id SECOND), changed + INTERVAL {rows} MICROSECOND,
        ELT(1 + (id + {rows}) % 3, 'new', 'used', 'worn')
    FROM warehouse.parts WHERE id <= {most}"""

# Executed during the load. The first new column is NULL in existing rows. The second has a default value in existing
# rows, and the binlog holds no event that sets it.
ADD_COLUMNS = (
    "ALTER TABLE shop.customers ADD COLUMN nickname VARCHAR(40) NULL",
    "UPDATE shop.customers SET nickname = name WHERE id % 3 = 0",
    "ALTER TABLE shop.order_lines ADD COLUMN packed TINYINT NOT NULL DEFAULT 7",
)

_PRODUCT = "id, sku, title, price, factor, weight, margin, picture, state, added, released"
_NEW_PRODUCT = ", ".join(f"NEW.{name}" for name in _PRODUCT.split(", "))
# A schema change with a shadow table, as pt-online-schema-change makes it: triggers keep the shadow up to date while
# the rows are copied; then the shadow takes the name of the table.
SHADOW_TABLE = (
    "CREATE TABLE shop._products_new LIKE shop.products",
    "ALTER TABLE shop._products_new MODIFY margin INT, ADD COLUMN rating DECIMAL(3,1) NOT NULL DEFAULT 5.0",
    f"""CREATE TRIGGER shop.products_added AFTER INSERT ON shop.products FOR EACH ROW
        REPLACE INTO shop._products_new ({_PRODUCT}) VALUES ({_NEW_PRODUCT})""",
    f"""CREATE TRIGGER shop.products_changed AFTER UPDATE ON shop.products FOR EACH ROW
        REPLACE INTO shop._products_new ({_PRODUCT}) VALUES ({_NEW_PRODUCT})""",
    """CREATE TRIGGER shop.products_removed AFTER DELETE ON shop.products FOR EACH ROW
        DELETE FROM shop._products_new WHERE id = OLD.id""",
    f"INSERT IGNORE INTO shop._products_new ({_PRODUCT}) SELECT {_PRODUCT} FROM shop.products",
    "RENAME TABLE shop.products TO shop._products_old, shop._products_new TO shop.products",
    "DROP TABLE shop._products_old",
)

# What happens to these tables besides changes of rows. The table of results shows these texts.
EVENTS = {
    EXISTING: "copied while it was written to",
    "shop.customers": "got a column",
    "shop.order_lines": "got a column with a default",
    "shop.products": "replaced by a shadow table",
}
