-- The registry: which tables are tiered, what of them is cold, and every operation on them.

CREATE SCHEMA frostline;
COMMENT ON SCHEMA frostline IS 'Frostline: the registry of tables whose old rows live in an Iceberg lake';
CREATE SCHEMA frostline_delta;
COMMENT ON SCHEMA frostline_delta IS 'Frostline: changes to cold rows that are not yet in the lake';
-- Ours is there already when an Iceberg table was kept; somebody's own is in the way.
DO $$
BEGIN
    IF pg_catalog.obj_description(pg_catalog.to_regnamespace('frostline_lake'), 'pg_namespace')
       IS DISTINCT FROM 'Frostline: the Iceberg JDBC catalog' THEN
        CREATE SCHEMA frostline_lake;
    END IF;
END
$$;
COMMENT ON SCHEMA frostline_lake IS 'Frostline: the Iceberg JDBC catalog';

CREATE TABLE frostline.migrations (
    number     int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- One row. The gateway's foreign server carries the id, so that a gateway of another database is refused.
CREATE TABLE frostline.installation (
    only_one     bool PRIMARY KEY DEFAULT true CHECK (only_one),
    id           uuid NOT NULL DEFAULT gen_random_uuid(),
    installed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO frostline.installation DEFAULT VALUES;

CREATE TABLE frostline.tables (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation          regclass NOT NULL UNIQUE,
    hot               regclass NOT NULL UNIQUE,
    delta             regclass NOT NULL UNIQUE,
    hot_for           text NOT NULL,
    lake_namespace    text NOT NULL,
    lake_table        text NOT NULL,
    seam              text,
    snapshot_id       bigint,
    metadata_location text,
    shape             jsonb NOT NULL,
    registered_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (lake_namespace, lake_table),
    CHECK ((snapshot_id IS NULL) = (metadata_location IS NULL))
);
COMMENT ON COLUMN frostline.tables.hot IS 'the partition that holds every hot leaf';
COMMENT ON COLUMN frostline.tables.hot_for IS 'how long rows stay hot: an interval, or a width for an integer key';
COMMENT ON COLUMN frostline.tables.seam IS 'keys below it are cold; NULL: none is';
COMMENT ON COLUMN frostline.tables.snapshot_id IS 'the Iceberg snapshot every reader sees; NULL: nothing was archived yet';
COMMENT ON COLUMN frostline.tables.metadata_location IS 'the Iceberg metadata file that describes that snapshot';
COMMENT ON COLUMN frostline.tables.shape IS 'constraints and partitions as they were before registration';

-- Which lake column holds which column of the user's table: by attribute number, so that a rename changes nothing.
CREATE TABLE frostline.columns (
    table_id  bigint NOT NULL REFERENCES frostline.tables ON DELETE CASCADE,
    attnum    smallint NOT NULL,
    lake_name text NOT NULL,
    PRIMARY KEY (table_id, attnum),
    UNIQUE (table_id, lake_name)
);

CREATE TABLE frostline.operations (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id          bigint NOT NULL REFERENCES frostline.tables ON DELETE CASCADE,
    kind              text NOT NULL CHECK (kind IN ('archive')),
    leaf              text NOT NULL,
    lower             text,
    upper             text NOT NULL,
    state             text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'failed')),
    snapshot_id       bigint,
    metadata_location text,
    rows              bigint,
    bytes             bigint,
    error             text,
    started_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at       timestamptz
);
COMMENT ON COLUMN frostline.operations.snapshot_id IS 'the Iceberg snapshot the operation made, readers see it once it is in frostline.tables';

CREATE TABLE frostline.steps (
    operation_id bigint NOT NULL REFERENCES frostline.operations ON DELETE CASCADE,
    number       int NOT NULL,
    name         text NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz,
    rows         bigint,
    bytes        bigint,
    error        text,
    PRIMARY KEY (operation_id, number)
);

CREATE TABLE frostline.periods (
    table_id      bigint NOT NULL REFERENCES frostline.tables ON DELETE CASCADE,
    lower         text,
    upper         text NOT NULL,
    foreign_table regclass NOT NULL UNIQUE,
    rows          bigint NOT NULL DEFAULT 0,
    bytes         bigint NOT NULL DEFAULT 0,
    files         int NOT NULL DEFAULT 0,
    operation_id  bigint REFERENCES frostline.operations,
    PRIMARY KEY (table_id, upper)
);
COMMENT ON TABLE frostline.periods IS 'the foreign partitions: one per archived period, and the one below the oldest';

-- A value as its type's output function prints it. A cast to text may be anything a user made of it.
CREATE FUNCTION frostline.output(value anyelement) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN $1 IS DISTINCT FROM NULL THEN pg_catalog.format('%s', $1) END $$;

-- Versions of cold rows are ordered by it; CACHE 1 so that a later write has a larger number in every session.
CREATE SEQUENCE frostline.version CACHE 1;

-- What Iceberg's JDBC catalog would create by itself, here so that it is reviewed and granted like the rest.
CREATE TABLE IF NOT EXISTS frostline_lake.iceberg_tables (
    catalog_name               varchar(255) NOT NULL,
    table_namespace            varchar(255) NOT NULL,
    table_name                 varchar(255) NOT NULL,
    metadata_location          varchar(1000),
    previous_metadata_location varchar(1000),
    iceberg_type               varchar(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS frostline_lake.iceberg_namespace_properties (
    catalog_name   varchar(255) NOT NULL,
    namespace      varchar(255) NOT NULL,
    property_key   varchar(255) NOT NULL,
    property_value varchar(1000),
    PRIMARY KEY (catalog_name, namespace, property_key)
);

CREATE VIEW frostline.status AS
SELECT t.relation::text AS "table",
       t.hot_for,
       coalesce(t.seam, '-') AS cold_below,
       hot.leaves AS hot_partitions,
       pg_size_pretty(hot.bytes) AS heap,
       cold.periods AS cold_periods,
       cold.rows AS cold_rows,
       pg_size_pretty(cold.bytes) AS lake,
       t.snapshot_id AS iceberg_snapshot,
       coalesce(last.kind || ' of ' || last.leaf || ': ' || last.state || coalesce(' at ' || last.step, ''), '-') AS last_operation
FROM frostline.tables t
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE isleaf) AS leaves, coalesce(sum(pg_total_relation_size(relid)), 0)::bigint AS bytes
    FROM pg_partition_tree(t.hot)
) hot
CROSS JOIN LATERAL (
    SELECT count(*) AS periods, coalesce(sum(rows), 0)::bigint AS rows, coalesce(sum(bytes), 0)::bigint AS bytes
    FROM frostline.periods p
    WHERE p.table_id = t.id
) cold
LEFT JOIN LATERAL (
    SELECT o.kind, o.leaf, o.state, CASE WHEN o.state <> 'done' THEN s.name END AS step
    FROM frostline.operations o
    LEFT JOIN frostline.steps s ON s.operation_id = o.id
    WHERE o.table_id = t.id
    ORDER BY o.id DESC, s.number DESC
    LIMIT 1
) last ON true;
