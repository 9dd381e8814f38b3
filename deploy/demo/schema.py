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

# Executed during the load; existing rows get NULL.
ADD_COLUMN = "ALTER TABLE shop.customers ADD COLUMN nickname VARCHAR(40) NULL"
