# Statements as people and their tools write them: migrations, dumps, online schema changes, consoles.
@group written by people, with frameworks
@tables CREATE TABLE shop.users (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(191) NOT NULL, email VARCHAR(191) NULL, status INT NOT NULL DEFAULT 0, created_at DATETIME NULL, UNIQUE KEY users_email_unique (email))
@tables INSERT INTO shop.users VALUES (1, 'Ann', 'ann@example.org', 1, '2024-01-02 03:04:05'), (2, 'Bob', NULL, 0, NULL)
@tables CREATE TABLE shop.orders (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, user_id BIGINT UNSIGNED NOT NULL, total DECIMAL(10,2) NOT NULL DEFAULT '0.00', note TEXT, KEY index_orders_on_user_id (user_id))
@tables INSERT INTO shop.orders VALUES (1, 1, 12.50, 'first'), (2, 1, 3.00, NULL)
ALTER TABLE `users` ADD `phone` varchar(255)
ALTER TABLE `users` ADD `admin` tinyint(1) DEFAULT FALSE NOT NULL
ALTER TABLE `users` ADD COLUMN `deleted_at` datetime(6) DEFAULT NULL
ALTER TABLE `users` ADD `lock_version` int DEFAULT 0 NOT NULL
ALTER TABLE `users` CHANGE `name` `full_name` varchar(255) DEFAULT NULL
ALTER TABLE `users` CHANGE `status` `status` int DEFAULT 1
ALTER TABLE `users` RENAME COLUMN `name` TO `full_name`
ALTER TABLE `users` DROP `status`
ALTER TABLE `users` DROP COLUMN `status`
ALTER TABLE `users` RENAME TO `members`
ALTER TABLE `users` ADD INDEX `index_users_on_created_at` (`created_at`)
CREATE INDEX `index_users_on_created_at` ON `users` (`created_at`)
CREATE UNIQUE INDEX `index_users_on_name` ON `users` (`name`)
DROP INDEX `index_orders_on_user_id` ON `orders`
ALTER TABLE `orders` RENAME INDEX `index_orders_on_user_id` TO `index_orders_on_buyer_id`
ALTER TABLE `orders` ADD CONSTRAINT `fk_rails_f868b47f6a` FOREIGN KEY (`user_id`) REFERENCES `users` (`id`)
ALTER TABLE `orders` ADD `product_id` bigint, ADD INDEX `index_orders_on_product_id` (`product_id`)
CREATE TABLE `products` (`id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, `title` varchar(255), `price` decimal(8,2), `created_at` datetime(6) NOT NULL, `updated_at` datetime(6) NOT NULL)
CREATE TABLE `schema_migrations` (`version` varchar(255) NOT NULL PRIMARY KEY)
CREATE TABLE `ar_internal_metadata` (`key` varchar(255) NOT NULL PRIMARY KEY, `value` varchar(255), `created_at` datetime(6) NOT NULL, `updated_at` datetime(6) NOT NULL)
CREATE TABLE `products_tags` (`product_id` bigint NOT NULL, `tag_id` bigint NOT NULL,  INDEX `index_products_tags` (`product_id`, `tag_id`)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
DROP TABLE IF EXISTS `products` CASCADE
DROP TABLE `orders`
ALTER TABLE `users` ADD COLUMN `nickname` varchar(30) DEFAULT '' NOT NULL
ALTER TABLE `users` ALTER COLUMN `nickname` DROP DEFAULT
ALTER TABLE `users` ALTER COLUMN `status` DROP DEFAULT
ALTER TABLE `users` MODIFY `name` varchar(200) NOT NULL
ALTER TABLE `users` MODIFY `email` varchar(254) NULL
ALTER TABLE `users` ADD CONSTRAINT `users_name_email_5a1b2c_uniq` UNIQUE (`name`, `email`)
ALTER TABLE `orders` ADD COLUMN `weight` double precision NULL
ALTER TABLE `orders` ADD COLUMN `payload` json NULL
CREATE TABLE `django_migrations` (`id` bigint AUTO_INCREMENT NOT NULL PRIMARY KEY, `app` varchar(255) NOT NULL, `name` varchar(255) NOT NULL, `applied` datetime(6) NOT NULL)
CREATE TABLE `auth_user_groups` (`id` integer AUTO_INCREMENT NOT NULL PRIMARY KEY, `user_id` integer NOT NULL, `group_id` integer NOT NULL)
RENAME TABLE `orders` TO `shop_order`
ALTER TABLE `orders` DROP COLUMN `note` CASCADE
create table `password_resets` (`email` varchar(255) not null, `token` varchar(255) not null, `created_at` timestamp null) default character set utf8mb4 collate 'utf8mb4_unicode_ci'
create table `failed_jobs` (`id` bigint unsigned not null auto_increment primary key, `uuid` varchar(255) not null, `connection` text not null, `queue` text not null, `payload` longtext not null, `exception` longtext not null, `failed_at` timestamp not null default CURRENT_TIMESTAMP) default character set utf8mb4 collate 'utf8mb4_unicode_ci'
create table `migrations` (`id` int unsigned not null auto_increment primary key, `migration` varchar(255) not null, `batch` int not null)
alter table `users` add `remember_token` varchar(100) null
alter table `users` add unique `users_name_unique`(`name`)
alter table `users` add `created` timestamp null, add `updated` timestamp null
alter table `orders` add constraint `orders_user_id_foreign` foreign key (`user_id`) references `users` (`id`) on delete cascade
alter table `orders` add index `orders_total_index`(`total`)
alter table `orders` drop index `index_orders_on_user_id`
alter table `orders` drop `note`, drop `total`
alter table `users` rename index `users_email_unique` to `users_mail_unique`
alter table `users` modify `status` bigint not null default '0'
alter table `users` add `options` json null after `email`
rename table `orders` to `purchases`
drop table if exists `jobs`
create table if not exists `sessions` (`id` varchar(255) not null primary key, `payload` text not null)
ALTER TABLE shop.users ADD middle_name VARCHAR(50) NULL
ALTER TABLE shop.users ADD rating INT DEFAULT 5 NULL COMMENT 'from 1 to 10'
ALTER TABLE shop.users MODIFY name VARCHAR(255)
ALTER TABLE shop.users DROP COLUMN status
ALTER TABLE shop.users RENAME shop.people
ALTER TABLE shop.users ADD PRIMARY KEY (id)
ALTER TABLE shop.orders ADD CONSTRAINT FK_ORDERS_USER FOREIGN KEY (user_id) REFERENCES shop.users (id) ON UPDATE RESTRICT ON DELETE RESTRICT
CREATE TABLE shop.DATABASECHANGELOGLOCK (ID INT NOT NULL, `LOCKED` TINYINT NOT NULL, LOCKGRANTED datetime NULL, LOCKEDBY VARCHAR(255) NULL, CONSTRAINT PK_DATABASECHANGELOGLOCK PRIMARY KEY (ID))
CREATE TABLE shop.DATABASECHANGELOG (ID VARCHAR(255) NOT NULL, AUTHOR VARCHAR(255) NOT NULL, FILENAME VARCHAR(255) NOT NULL, DATEEXECUTED datetime NOT NULL, ORDEREXECUTED INT NOT NULL, EXECTYPE VARCHAR(10) NOT NULL, MD5SUM VARCHAR(35) NULL)
CREATE TABLE `shop`.`flyway_schema_history` (␤    `installed_rank` INT NOT NULL,␤    `version` VARCHAR(50),␤    `description` VARCHAR(200) NOT NULL,␤    `type` VARCHAR(20) NOT NULL,␤    `script` VARCHAR(1000) NOT NULL,␤    `checksum` INT,␤    `installed_by` VARCHAR(100) NOT NULL,␤    `installed_on` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,␤    `execution_time` INT NOT NULL,␤    `success` BOOL NOT NULL,␤    CONSTRAINT `flyway_schema_history_pk` PRIMARY KEY (`installed_rank`)␤) ENGINE=InnoDB AS SELECT 1 as "installed_rank", '1' as "version", '<< Baseline >>' as "description", 'BASELINE' as "type", '' as "script", NULL as "checksum", 'root' as "installed_by", CURRENT_TIMESTAMP as "installed_on", 0 as "execution_time", TRUE as "success"
CREATE INDEX `flyway_schema_history_s_idx` ON `shop`.`users` (`status`)
ALTER TABLE users ADD COLUMN (city VARCHAR(80), country CHAR(2) NOT NULL DEFAULT 'DE')
ALTER TABLE users␤  ADD COLUMN locale VARCHAR(10) NOT NULL DEFAULT 'en',␤  ADD COLUMN timezone VARCHAR(40) NOT NULL DEFAULT 'UTC',␤  ADD INDEX idx_locale (locale)
ALTER TABLE users ADD COLUMN score FLOAT UNSIGNED NOT NULL DEFAULT '0' AFTER status, ALGORITHM=INPLACE, LOCK=NONE
ALTER TABLE users ADD COLUMN flags SET('a','b') NOT NULL DEFAULT ''
ALTER TABLE users ADD COLUMN kind ENUM('user','admin') NOT NULL DEFAULT 'user' COMMENT 'role; see #42'
ALTER TABLE orders MODIFY COLUMN total DECIMAL(12,2) NOT NULL DEFAULT 0
ALTER TABLE orders MODIFY COLUMN id BIGINT NOT NULL AUTO_INCREMENT
ALTER TABLE orders MODIFY note MEDIUMTEXT
ALTER TABLE orders CHANGE note note TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NULL
ALTER TABLE orders CHANGE COLUMN `note` `remark` TEXT NULL AFTER `id`
ALTER TABLE orders ADD COLUMN updated_at DATETIME NULL, ADD COLUMN closed TINYINT(1) NOT NULL DEFAULT '0'
ALTER TABLE orders DROP FOREIGN KEY fk_missing
ALTER TABLE orders AUTO_INCREMENT = 1000
ALTER TABLE orders ENGINE=InnoDB
ALTER TABLE orders COMMENT = 'orders of the shop'
ALTER TABLE orders ROW_FORMAT=DYNAMIC
ALTER TABLE orders ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, COMMENT = 'x'
ALTER TABLE users CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci
ALTER TABLE users DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci
ALTER TABLE orders ADD FULLTEXT INDEX ft_note (note)
ALTER TABLE orders ADD KEY `idx` (`user_id`,`id`) USING BTREE
ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, user_id)
ALTER TABLE orders ADD id2 INT UNSIGNED NOT NULL DEFAULT 0 FIRST
ALTER TABLE orders ADD COLUMN IF NOT EXISTS total2 DECIMAL(10,2) NOT NULL DEFAULT 0.00
ALTER TABLE orders DROP COLUMN IF EXISTS note
ALTER TABLE orders ADD INDEX IF NOT EXISTS i (total)
TRUNCATE TABLE orders
truncate orders
DROP TABLE IF EXISTS orders, users
DROP VIEW IF EXISTS active_users
CREATE OR REPLACE VIEW active_users AS SELECT id, name FROM users WHERE status = 1
CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`localhost` SQL SECURITY DEFINER VIEW `active_users` AS select `users`.`id` AS `id` from `users`
CREATE TABLE users_backup LIKE users
CREATE TABLE IF NOT EXISTS users_backup LIKE users
CREATE TABLE orders_2024 AS SELECT * FROM orders
CREATE TABLE orders_archive SELECT * FROM orders WHERE 1=0
RENAME TABLE users TO users_old, orders TO users
ANALYZE TABLE users
OPTIMIZE TABLE users, orders
GRANT SELECT ON shop.* TO 'reader'@'%' IDENTIFIED BY 'secret'
FLUSH PRIVILEGES
CREATE USER IF NOT EXISTS 'debezium'@'%' IDENTIFIED BY 'dbz'
@group written by people, online schema changes
@tables CREATE TABLE shop._t_gho (id INT PRIMARY KEY, a BIGINT, b VARCHAR(20), c VARCHAR(20), z INT)
@tables INSERT INTO shop._t_gho VALUES (1, 1, 'one', 'x', 0)
@tables CREATE TABLE shop._t_ghc (id BIGINT AUTO_INCREMENT PRIMARY KEY, last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint VARCHAR(64) CHARACTER SET ascii NOT NULL, value VARCHAR(4096) CHARACTER SET ascii NOT NULL, UNIQUE KEY hint_uidx (hint))
create /* gh-ost */ table `shop`.`_u_ghc` (␤␉␉␉id bigint auto_increment,␤␉␉␉last_update timestamp not null DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,␤␉␉␉hint varchar(64) charset ascii not null,␤␉␉␉value varchar(4096) charset ascii not null,␤␉␉␉primary key(id),␤␉␉␉unique key hint_uidx(hint)␤␉␉) auto_increment=256␤␉
create /* gh-ost */ table `shop`.`_u_gho` like `shop`.`u`
alter /* gh-ost */ table `shop`.`_t_gho` ADD COLUMN z2 INT NOT NULL DEFAULT 0
alter /* gh-ost */ table `shop`.`_t_gho` AUTO_INCREMENT=120
drop /* gh-ost */ table if exists `shop`.`_t_gho`
drop /* gh-ost */ table if exists `shop`.`_t_ghc`
create /* gh-ost */ table `shop`.`_t_del` (␤␉␉␉id int auto_increment primary key␤␉␉) engine=InnoDB comment='ghost-cut-over-sentry'
rename /* gh-ost */ table `shop`.`t` to `shop`.`_t_del`, `shop`.`_t_gho` to `shop`.`t`
RENAME TABLE `shop`.`t` TO `shop`.`_t_old`, `shop`.`_t_gho` TO `shop`.`t`
CREATE TABLE `shop`.`_t_new` (␤  `id` int NOT NULL,␤  `a` int DEFAULT NULL,␤  PRIMARY KEY (`id`)␤) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
ALTER TABLE `shop`.`_t_gho` add column x int not null default 0, drop column b
CREATE TRIGGER `pt_osc_shop_t_del` AFTER DELETE ON `shop`.`t` FOR EACH ROW BEGIN DECLARE CONTINUE HANDLER FOR 1146 begin end; DELETE IGNORE FROM `shop`.`_t_gho` WHERE `shop`.`_t_gho`.`id` <=> OLD.`id`; END
CREATE TRIGGER `pt_osc_shop_t_ins` AFTER INSERT ON `shop`.`t` FOR EACH ROW REPLACE INTO `shop`.`_t_gho` (`id`, `a`) VALUES (NEW.`id`, NEW.`a`)
DROP TRIGGER IF EXISTS `shop`.`pt_osc_shop_t_del`
DROP TABLE IF EXISTS `shop`.`_t_old`
DROP TABLE IF EXISTS `shop`.`_t_gho` /* by a cleanup job */
ALTER TABLE `_t_gho` ADD COLUMN `tenant` INT(11) UNSIGNED NOT NULL DEFAULT '1' AFTER `id`
ALTER TABLE t ADD COLUMN z INT, ALGORITHM=INSTANT
ALTER TABLE t DROP INDEX k, ADD INDEX k (a, b), ALGORITHM=INPLACE, LOCK=NONE
SET STATEMENT max_statement_time=60 FOR ALTER TABLE t ADD COLUMN z INT DEFAULT 1
ALTER TABLE t FORCE
@group written by people, dumps and tools
DROP TABLE IF EXISTS `t`
/*!40000 ALTER TABLE `t` DISABLE KEYS */
/*!40000 ALTER TABLE `t` ENABLE KEYS */
/*!40101 SET NAMES utf8mb4 */
/*!40103 SET TIME_ZONE='+00:00' */
/*!50503 SET character_set_client = utf8mb4 */
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `blog` /*!40100 DEFAULT CHARACTER SET utf8mb4 */
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `blog` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci */ /*!80016 DEFAULT ENCRYPTION='N' */
/*!40000 DROP DATABASE IF EXISTS `other`*/
CREATE TABLE `wp_posts` (␤  `ID` bigint(20) unsigned NOT NULL AUTO_INCREMENT,␤  `post_author` bigint(20) unsigned NOT NULL DEFAULT '0',␤  `post_content` longtext NOT NULL,␤  `post_title` text NOT NULL,␤  `post_status` varchar(20) NOT NULL DEFAULT 'publish',␤  PRIMARY KEY (`ID`),␤  KEY `post_author` (`post_author`)␤) ENGINE=InnoDB AUTO_INCREMENT=5 DEFAULT CHARSET=utf8mb4
CREATE TABLE wp_options (␤␉option_id bigint(20) unsigned NOT NULL auto_increment,␤␉option_name varchar(191) NOT NULL default '',␤␉option_value longtext NOT NULL,␤␉autoload varchar(20) NOT NULL default 'yes',␤␉PRIMARY KEY  (option_id),␤␉UNIQUE KEY option_name (option_name),␤␉KEY autoload (autoload)␤) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci
/*!50001 DROP VIEW IF EXISTS `v`*/
/*!50001 CREATE ALGORITHM=UNDEFINED */␤/*!50013 DEFINER=`root`@`localhost` SQL SECURITY DEFINER */␤/*!50001 VIEW `v2` AS select 1 AS `id` */
/*!50003 CREATE*/ /*!50017 DEFINER=`root`@`localhost`*/ /*!50003 TRIGGER `tr` BEFORE INSERT ON `t` FOR EACH ROW SET NEW.a = 1 */
/*!50003 CREATE*/ /*!50020 DEFINER=`root`@`localhost`*/ /*!50003 FUNCTION `fu`() RETURNS int(11) DETERMINISTIC RETURN 1 */
CREATE TABLE `log` (␤  `id` int NOT NULL,␤  `at` date NOT NULL␤) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4␤/*!50100 PARTITION BY RANGE (id)␤(PARTITION p0 VALUES LESS THAN (10) ENGINE = InnoDB,␤ PARTITION p1 VALUES LESS THAN MAXVALUE ENGINE = InnoDB) */
CREATE TABLE `evt` (`id` int NOT NULL, `d` datetime NOT NULL, PRIMARY KEY (`id`,`d`)) PARTITION BY RANGE (TO_DAYS(d)) (PARTITION p20240101 VALUES LESS THAN (TO_DAYS('2024-01-02')), PARTITION pmax VALUES LESS THAN MAXVALUE)
ALTER TABLE p ADD PARTITION (PARTITION p3 VALUES LESS THAN (40))
ALTER TABLE `p` REORGANIZE PARTITION `p2` INTO (PARTITION `p20` VALUES LESS THAN (30) ENGINE = InnoDB, PARTITION `p2` VALUES LESS THAN MAXVALUE ENGINE = InnoDB)
CREATE TABLE IF NOT EXISTS `heartbeat` (ts VARCHAR(26) NOT NULL, server_id INT UNSIGNED NOT NULL PRIMARY KEY, file VARCHAR(255) DEFAULT NULL, position BIGINT UNSIGNED DEFAULT NULL)
CREATE TABLE `checksums` (␤   db             CHAR(64)     NOT NULL,␤   tbl            CHAR(64)     NOT NULL,␤   chunk          INT          NOT NULL,␤   lower_boundary BLOB         NULL,␤   ts             TIMESTAMP    NOT NULL,␤   PRIMARY KEY (db, tbl, chunk),␤   INDEX ts_db_tbl (ts, db, tbl)␤) ENGINE=InnoDB
CREATE TABLE debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)
CREATE TABLE IF NOT EXISTS `maxwell`.`heartbeats` (server_id int unsigned not null, client_id varchar(255) character set latin1 not null, heartbeat bigint not null, primary key(server_id, client_id))
CREATE DATABASE IF NOT EXISTS `maxwell` DEFAULT CHARACTER SET utf8
CREATE TABLE t_types (a TINYINT(1) UNSIGNED, b MEDIUMINT, c NUMERIC(5), d DOUBLE(8,3), e BIT(1) DEFAULT b'1', f TIME(3), g YEAR(4), h CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, i VARBINARY(16), j TINYBLOB, k LONGTEXT COLLATE utf8mb4_bin, l ENUM('it''s','b'), m SET('x','y'))
CREATE TABLE `Order Details` (`OrderID` int, `Unit Price` decimal(10,2) DEFAULT '0.00', KEY `Unit Price` (`Unit Price`))
CREATE TABLE t_gen (id INT PRIMARY KEY, first VARCHAR(9), last VARCHAR(9), full_name VARCHAR(20) GENERATED ALWAYS AS (CONCAT(first, ' ', last)) VIRTUAL)
CREATE TABLE t_check (id INT PRIMARY KEY, age INT, CHECK (age >= 18))
ALTER TABLE t ADD UNIQUE KEY `uniq` (`b`), ADD KEY `idx` (`c`)
ALTER TABLE t ADD COLUMN note VARCHAR(200) COMMENT 'free text, e.g. "call back; later"'
ALTER TABLE t ADD COLUMN note VARCHAR(200) DEFAULT 'n/a' COMMENT 'it''s optional'
ALTER TABLE t ADD price DECIMAL(10,2) DEFAULT 0.00, ADD qty INT UNSIGNED NOT NULL DEFAULT 1
ALTER TABLE t ADD `active` BIT(1) NOT NULL DEFAULT b'1'
ALTER TABLE t ADD `uuid` BINARY(16) NULL
ALTER TABLE t ADD `from` DATE NULL, ADD `to` DATE NULL
ALTER TABLE t CHANGE COLUMN `a` `a` INT(11) NULL DEFAULT NULL COMMENT 'x' AFTER `b`
ALTER TABLE `t` CHANGE `b` `b` VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NULL DEFAULT NULL;
ALTER TABLE `shop`.`t` ADD COLUMN `z` VARCHAR(45) NULL AFTER `c`;
ALTER TABLE `shop`.`t` ␤CHANGE COLUMN `b` `b` VARCHAR(45) NULL DEFAULT NULL ,␤ADD COLUMN `z` INT NULL AFTER `b`
ALTER TABLE `t` ADD PRIMARY KEY(`id`)
ALTER TABLE `n` ADD PRIMARY KEY(`a`, `b`)
ALTER TABLE `t` DROP INDEX `k`, ADD UNIQUE `k` (`b`) USING BTREE
ALTER TABLE `child` DROP FOREIGN KEY `fk`, DROP INDEX `fk`
CREATE TEMPORARY TABLE tmp_ids (id INT PRIMARY KEY)
CREATE TEMPORARY TABLE IF NOT EXISTS tmp_report AS (SELECT * FROM t)
DROP TEMPORARY TABLE IF EXISTS tmp_ids
DELIMITER ;
@group values that no log holds
ALTER TABLE t ADD COLUMN created TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
ALTER TABLE t ADD COLUMN updated DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
ALTER TABLE t ADD COLUMN uid CHAR(36) NOT NULL DEFAULT (UUID())
ALTER TABLE t ADD COLUMN double_a INT GENERATED ALWAYS AS (a * 2) STORED
ALTER TABLE n ADD COLUMN id INT NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST
ALTER TABLE p DROP PARTITION p0
ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE x
ALTER TABLE t ADD COLUMN `shipped` bool DEFAULT b'0' NOT NULL
