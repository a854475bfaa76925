-- What a gateway must know to read a table's cold rows: one that knows less refuses, rather than to return too few. A
-- version that keeps rows where those before do not look raises the number of a table when it first does so there.

ALTER TABLE frostline.tables ADD COLUMN readers int NOT NULL DEFAULT 1;
