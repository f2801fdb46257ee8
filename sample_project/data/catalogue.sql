-- The shop's data. servers/shop.py reads it into memory when it starts: edit it and restart the fleet.

CREATE TABLE products (
    sku TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    words TEXT NOT NULL,            -- what people call it
    price_cents INTEGER NOT NULL,   -- without VAT
    stock INTEGER NOT NULL
);

CREATE TABLE orders (
    number INTEGER PRIMARY KEY,
    ordered_on TEXT NOT NULL,
    customer TEXT NOT NULL,
    discount_code TEXT
);

CREATE TABLE order_lines (
    number INTEGER NOT NULL REFERENCES orders,
    sku TEXT NOT NULL REFERENCES products,
    quantity INTEGER NOT NULL
);

INSERT INTO products VALUES
    ('DL-100', 'Tern desk lamp', 'table office work', 8900, 42),
    ('DL-110', 'Tern desk lamp, brass', 'table office work', 10900, 7),
    ('FL-200', 'Heron floor lamp', 'standing living room', 18900, 11),
    ('FL-210', 'Heron reading lamp', 'standing floor book', 14900, 0),
    ('PL-300', 'Gull pendant, small', 'ceiling hanging lamp kitchen', 6900, 64),
    ('PL-310', 'Gull pendant, large', 'ceiling hanging lamp kitchen', 12900, 18),
    ('WL-400', 'Wren wall light', 'lamp hall stairs', 5450, 35),
    ('GL-500', 'Plover garden light', 'lamp outdoor outside rain', 7900, 3),
    ('BB-010', 'LED bulb E27, 470 lm', 'warm', 690, 480),
    ('BB-020', 'LED bulb E27, 806 lm, dimmable', 'warm', 990, 312),
    ('SP-600', 'Inline dimmer', 'spare switch', 2400, 55),
    ('SP-610', 'Linen shade', 'spare replacement', 3200, 20);

INSERT INTO orders VALUES
    (1043, '2026-04-22', 'Quill Bookshop', NULL),
    (1051, '2026-05-12', 'Harbour Hotel', 'SPRING10'),
    (1052, '2026-05-13', 'Northgate Library', NULL),
    (1054, '2026-05-14', 'Mirel & Sons', 'SPRING10'),
    (1057, '2026-05-18', 'Studio Okafor', 'TRADE15'),
    (1061, '2026-05-27', 'Quill Bookshop', NULL),
    (1066, '2026-06-09', 'Harbour Hotel', NULL);

INSERT INTO order_lines VALUES
    (1043, 'WL-400', 6), (1043, 'BB-010', 6),
    (1051, 'PL-300', 24), (1051, 'BB-020', 24),
    (1052, 'FL-210', 10),
    (1054, 'DL-110', 4), (1054, 'SP-600', 4),
    (1057, 'FL-200', 2), (1057, 'BB-010', 6),
    (1061, 'BB-020', 12),
    (1066, 'GL-500', 2);
