"""The types that the rest of the suite has no column of: most are kept as text, and Postgres evaluates what is asked.

Each is a column of the table that is held twice. In what is asked `{c}` is the column and `{v}` a labelled constant.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPES = """
CREATE TYPE pair AS (a int, b text);
CREATE TYPE floatrange AS RANGE (subtype = float8, multirange_type_name = floatmulti);
CREATE DOMAIN amount AS numeric(12, 2);
CREATE DOMAIN code AS varchar(5) CHECK (VALUE <> 'never');
CREATE DOMAIN padded AS char(4);
CREATE DOMAIN moods AS mood;
CREATE DOMAIN pairs AS pair;
CREATE DOMAIN list AS int[];
CREATE DOMAIN moment AS timestamptz;
CREATE COLLATION odd (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
"""
EQUAL = ("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
ORDER = ("<", "<=", ">", ">=")


@dataclass(frozen=True)
class Kind:
    """A type, its values, and what Postgres has for it."""

    type: str
    values: tuple[str, ...]
    tests: tuple[str, ...] = ()  # conditions of its own
    makes: tuple[str, ...] = ()  # what is computed of it
    equal: bool = True
    ordered: bool = True  # < and so on
    grouped: bool = True  # ORDER BY, GROUP BY and DISTINCT
    extremes: bool = False  # min and max
    also: str = ""  # what comes after the type in a column's definition
    unequal: bool = True  # <>

    @property
    def operators(self) -> tuple[str, ...]:
        equal = (*EQUAL[:1], *(EQUAL[1:2] if self.unequal else ()), *EQUAL[2:])
        return (*(equal if self.equal else ()), *(ORDER if self.ordered else ()))

    @property
    def listed(self) -> bool:
        """Whether = ANY of an array is for it: an array of arrays is one of their elements."""
        return self.equal and self.unequal and "{" not in self.values[0] + self.values[-1]

    def constant(self, text: str | None) -> str:
        if text is None:
            return f"NULL::{self.type}"
        plain = text.replace("'", "''")
        return (f"E'{plain}'".replace("\\", "\\\\") if "\\" in text else f"'{plain}'") + f"::{self.type}"


def conditions(name: str) -> list[str]:
    """All that is asked about a column."""
    kind = KINDS[name]
    first, last = (kind.constant(text) for text in (kind.values[0], kind.values[-1]))
    found = [f"{name} {operator} {value}" for operator in kind.operators for value in (first, last, name)]
    found += [f"{name} {operator} {kind.constant(None)}" for operator in kind.operators[:3]]
    found += [f"{name} IS NULL", f"{name} IS NOT NULL", f"{name}::text = {Kind('text', ()).constant(kind.values[-1])}"]
    if kind.listed:
        found += [f"{name} IN ({first}, {last})", f"{name} NOT IN ({last}, {first})", f"{name} <> ALL (ARRAY[{last}])"]
        found += [f"{name} = ANY (ARRAY[{last}, NULL])"]
    return found + [test.replace("{c}", name).replace("{v}", value) for test in kind.tests for value in (first, last)]


def computed(name: str) -> list[str]:
    """And what is made of it."""
    kind = KINDS[name]
    return [
        made.replace("{c}", name).replace("{v}", kind.constant(text))
        for made in (*kind.makes, "{c}", "{c}::text")
        for text in (kind.values[-1], kind.values[0])[: 1 + ("{v}" in made)]
    ]


_RANGED = (
    *("{c} && {v}", "{c} @> {v}", "{c} <@ {v}", "{c} << {v}", "{c} >> {v}", "{c} &< {v}", "{c} &> {v}"),
    *("{c} -|- {v}", "isempty({c})", "lower_inc({c})", "upper_inf({c})"),
)
_SPAN = ("lower({c})", "upper({c})", "{c} * {v}")
_ARRAY = ("{c} && {v}", "{c} @> {v}", "{c} <@ {v}", "cardinality({c}) > 1")
_LISTED = ("{c} || {v}", "cardinality({c})", "array_dims({c})", "({c})[1]")
_BITS = ("{c} & {v}", "{c} | {v}", "{c} # {v}", "~ {c}", "{c} || {v}", "{c} << 1", "length({c})")
_NET = ("{c} << {v}", "{c} <<= {v}", "{c} >> {v}", "{c} >>= {v}", "{c} && {v}", "family({c}) = 4")
_ADDRESS = ("host({c})", "masklen({c})", "network({c})", "abbrev({c})", "set_masklen({c}, 8)")
_MAC = ("~ {c}", "{c} & {v}", "trunc({c})")
_LIKE = ("{c} LIKE 'a%'", "{c} ~ '^a'", "{c} LIKE '%\\_%'")

KINDS: dict[str, Kind] = {
    "x_bit": Kind("bit(4)", ("0000", "1010", "0101", "1111", "0001"), ("({c} & {v}) = {v}",), _BITS),
    "x_varbit": Kind("varbit", ("", "0", "1", "01", "10", "1010", "101" * 30), (), ("{c} || {v}", "~ {c}", "{c} << 1")),
    "x_char": Kind('"char"', ("", "a", "A", "b", "\\", "'", "~"), ("{c}::text = 'a'",), ("{c}::int",)),
    "x_name": Kind("name", ("", "a", "A", "ab", "a_b", "é", "Z", "z", "x" * 63), _LIKE, ("{c} || 'x'", "length({c})")),
    "x_bpchar": Kind("bpchar", ("", "a", "a  ", "  ", "A", "ab\n ", "é", "b"), _LIKE, ("{c} || '|'",)),
    "x_odd": Kind("text", ("a", "A", "é", "É", "b", "", "ab", "AB"), (), ("{c} || 'x'",), also=" COLLATE odd"),
    "x_code": Kind("public.code", ("", "a", "ab", "ab ", "é", "A"), _LIKE, ("{c} || 'x'", "length({c})")),
    "x_padded": Kind("public.padded", ("", "a", "ab", " a", "é", "A"), _LIKE, ("{c} || '|'", "octet_length({c})")),
    "x_oid": Kind("oid", ("0", "1", "2147483647", "2147483648", "4294967295"), ("{c} > 5", "{c} = 1"), extremes=True),
    "x_class": Kind(
        "regclass", ("pg_class", "pg_type", "0", "4000000000"), ("{c} = 'pg_class'::regclass",), ("{c}::oid",)
    ),
    "x_type": Kind("regtype", ("integer", "timestamp with time zone", "0", "text"), (), ("{c}::oid::bigint",)),
    "x_xid": Kind("xid", ("0", "1", "4294967295"), ordered=False, grouped=False),
    "x_cid": Kind("cid", ("0", "1", "4294967295"), ordered=False, grouped=False, unequal=False),
    "x_xid8": Kind("xid8", ("0", "1", "4294967296", "18446744073709551615"), (), ("{c}::xid",)),
    "x_tid": Kind("tid", ("(0,0)", "(0,1)", "(1,0)", "(4294967295,65535)"), extremes=True),
    "x_lsn": Kind("pg_lsn", ("0/0", "0/1", "16/B374D848", "FFFFFFFF/FFFFFFFF"), (), ("{c} - {v}",), extremes=True),
    "x_snapshot": Kind("pg_snapshot", ("10:20:10,14,15", "1:1:"), (), ("pg_snapshot_xmin({c})",), False, False, False),
    "x_int2vector": Kind("int2vector", ("", "1", "-32768 0 32767"), ("{c}[0] = 1",), (), True, False, False),
    "x_oidvector": Kind("oidvector", ("", "0", "0 1 4294967295", "5 6"), ("{c}[0] = 0",)),
    "x_cursor": Kind(
        "refcursor", ("", "c1", "Odd \"cursor'"), ("{c}::text = 'c1'",), ("{c}::text",), False, False, False
    ),
    "x_inet": Kind(
        "inet",
        ("10.0.0.1/8", "10.0.0.1", "10.1.0.0/16", "::1", "fe80::1/64", "::ffff:1.2.3.4", "0.0.0.0/0", "9.255.255.255"),
        _NET,
        (*_ADDRESS, "~ {c}", "{c} + 1 IS NULL"),
        extremes=True,
    ),
    "x_cidr": Kind("cidr", ("0.0.0.0/0", "10.1.0.0/16", "10.0.0.0/8", "::/0", "2001:db8::/32"), _NET, _ADDRESS),
    "x_mac": Kind("macaddr", ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "08:00:2b:01:02:03"), (), _MAC),
    "x_mac8": Kind(
        "macaddr8", ("00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff", "08:00:2b:ff:fe:01:02:03"), (), _MAC
    ),
    "x_timetz": Kind(
        "timetz",
        ("00:00+14", "24:00-15:59", "12:34:56.789+05:45", "23:59:59.999999+00", "12:00+00", "13:00+01"),
        ("extract(hour FROM {c}) = 12",),
        ("{c} AT TIME ZONE 'UTC'",),
        extremes=True,
    ),
    "x_json": Kind(
        "json",
        ('{"a" : 1}', '{"a":1}', "[1, 2 ]", "null", '"x"'),
        ("{c}->>'a' = '1'",),
        ("{c}->'a'",),
        False,
        False,
        False,
    ),
    "x_jsonpath": Kind(
        "jsonpath", ("$", '$."a b"[*]', "lax $.**{2 to last}"), ("'{\"a\": 1}'::jsonb @? {c}",), (), False, False, False
    ),
    "x_tsvector": Kind(
        "tsvector",
        ("", "'a':1A,2 'b':3", "'b'", "'cat':1 'rat':2", "'it''s' 'x\\\\y'"),
        ("{c} @@ 'a & b'::tsquery", "{c} @@ 'cat <-> rat'::tsquery", "{c} @@ '!a'::tsquery"),
        ("{c} || {v}", "length({c})", "strip({c})", "ts_rank({c}, 'a'::tsquery)"),
    ),
    "x_tsquery": Kind(
        "tsquery",
        ("'fat' & ( 'rat' | !'cat':AB )", "", "'a'", "'a' <-> 'b'", "'a' | 'b'"),
        ("'a:1 b:2'::tsvector @@ {c}", "{c} @> {v}", "{c} <@ {v}"),
        ("{c} && {v}", "{c} || {v}", "!! {c}", "numnode({c})"),
    ),
    "x_int4range": Kind(
        "int4range", ("empty", "[1,5)", "(,)", "[5,7)", "[-2147483648,2147483647)", "[3,4)"), _RANGED, _SPAN
    ),
    "x_int8range": Kind(
        "int8range", ("empty", "[1,5)", "[-9223372036854775808,9223372036854775807)", "(,5)"), _RANGED, _SPAN
    ),
    "x_numrange": Kind(
        "numrange", ("empty", "(0.10,1e40]", "(,)", "[NaN,NaN]", "[0.1,0.1]", "[0.10,0.10]"), _RANGED, _SPAN
    ),
    "x_daterange": Kind(
        "daterange",
        ("empty", "[0044-03-15 BC,infinity]", "(,)", "[2020-01-01,2020-01-02)", "[2020-01-01,)"),
        _RANGED,
        _SPAN,
    ),
    "x_tsrange": Kind(
        "tsrange", ("empty", "[-infinity,294276-12-31]", "(,)", "[2020-01-01,2020-01-02)"), _RANGED, _SPAN
    ),
    "x_tstzrange": Kind(
        "tstzrange", ("empty", "[2020-03-29 01:30+00,infinity)", "(,)", "[2020-03-29 02:30+01,)"), _RANGED, _SPAN
    ),
    "x_floatrange": Kind(
        "public.floatrange", ("empty", "[-Infinity,0.1)", "(,)", "[-0,0]", "[0,0]", "(5e-324,1e308]"), _RANGED[:3]
    ),
    "x_int4multi": Kind(
        "int4multirange", ("{}", "{[1,5),[7,)}", "{(,)}", "{[2,3)}"), _RANGED, (*_SPAN, "{c} + {v}", "{c} - {v}")
    ),
    "x_datemulti": Kind("datemultirange", ("{}", "{[2020-01-01,2020-02-01),[9999-12-31,)}", "{(,)}"), _RANGED, _SPAN),
    "x_tstzmulti": Kind("tstzmultirange", ("{}", "{[2020-01-01 00:00+02,2020-01-02 00:00-11:30)}"), _RANGED, _SPAN),
    "x_point": Kind(
        "point",
        ("(0,0)", "(-0,NaN)", "(Infinity,-Infinity)", "(0.1,5e-324)", "(1,1)"),
        ("{c} ~= {v}", "{c} << {v}", "{c} <@ '((-1,-1),(2,2))'::box"),
        ("{c}[0]", "{c} + {v}", "{c} <-> '(0,0)'::point"),
        equal=False,
        ordered=False,
        grouped=False,
    ),
    "x_box": Kind(
        "box",
        ("(1,2),(-3,-4.5)", "(Infinity,NaN),(-Infinity,0)", "(1,1),(0,0)", "(2,1),(1,0)"),
        ("{c} && {v}", "{c} @> {v}", "{c} <@ {v}", "{c} ~= {v}", "{c} << {v}", "{c} |>> {v}"),
        ("area({c})", "{c} # {v}", "center({c})"),
        grouped=False,
        unequal=False,
    ),
    "x_circle": Kind(
        "circle",
        ("<(0.1,-0.2),0>", "<(0,0),1>", "<(1,1),1>"),
        ("{c} && {v}", "{c} ~= {v}"),
        ("area({c})",),
        grouped=False,
    ),
    "x_line": Kind(
        "line",
        ("{1,-1,0}", "{0.1,1e-300,NaN}", "{2,-2,0}"),
        ("{c} ?|| {v}",),
        ordered=False,
        grouped=False,
        unequal=False,
    ),
    "x_lseg": Kind(
        "lseg",
        ("[(0,0),(1,1)]", "[(-0,NaN),(Infinity,0.1)]", "[(0,1),(1,0)]"),
        ("{c} ?# {v}",),
        ("length({c})",),
        grouped=False,
    ),
    "x_path": Kind(
        "path",
        ("[(0,0),(1,1)]", "((0.1,2),(3,-4e-300),(5,6))"),
        ("isclosed({c})",),
        ("{c} + {v}", "npoints({c})"),
        grouped=False,
        unequal=False,
    ),
    "x_polygon": Kind(
        "polygon",
        ("((0,0),(1,1),(2,0))", "((0.1,-0.2))"),
        ("{c} && {v}", "{c} ~= {v}"),
        ("npoints({c})",),
        False,
        False,
        False,
    ),
    "x_pair": Kind(
        "public.pair",
        ("(1,a)", "(1,A)", "(2,)", "(,)", '(,"")', '(-2147483648,"x, y")'),
        ("{c} IS NULL", "{c} IS NOT NULL", "NOT ({c} IS NULL)", "({c}).a = 1", "({c}).b < 'b'", "({c}).b IS NULL"),
        ("({c}).a", "({c}).b || 'x'"),
    ),
    "x_pairs": Kind(
        "public.pairs", ("(1,a)", "(,)", "(1,A)", "(2,b)"), ("{c} IS NULL", "{c} IS NOT NULL"), ("({c}).a",)
    ),
    "x_amount": Kind(
        "public.amount",
        ("-9999999999.99", "0.00", "0.01", "5"),
        ("{c} > 0", "{c} + 1 = 1.01"),
        ("{c} * 2", "-{c}"),
        extremes=True,
    ),
    "x_moods": Kind(
        "public.moods", ("sad", "ok", "happy"), ("{c}::public.mood > 'ok'::public.mood",), equal=False, ordered=False
    ),
    "x_moment": Kind(
        "public.moment",
        ("0044-03-15 12:00:00+00 BC", "2025-03-30 01:30:00+00", "1970-01-01 00:00:00+00"),
        ("{c} > '2000-01-01'",),
        extremes=True,
    ),
    "x_list": Kind("public.list", ("{}", "{1,NULL}", "[0:1]={7,8}", "{{1,2},{3,4}}", "{1}"), _ARRAY, _LISTED[1:3]),
    "x_moods_array": Kind(
        "public.mood[]",
        ("{}", "{sad,NULL}", "{{happy}}", "{ok,sad}", "{NULL}"),
        (*_ARRAY, "'sad' = ANY ({c})"),
        _LISTED,
    ),
    "x_pair_array": Kind("public.pair[]", ('{"(1,a)",NULL}', "{}", '{"(,)"}'), _ARRAY[:3], _LISTED),
    "x_float_array": Kind(
        "float8[]", ("{NaN,0,-0}", "{}", "{0.1,NULL}", "{0}", "{-0}"), (*_ARRAY, "'NaN' = ANY ({c})"), _LISTED
    ),
    "x_numeric_array": Kind("numeric(9,2)[]", ("{0.10,NaN,NULL}", "{0.1}", "{}"), _ARRAY, _LISTED, extremes=True),
    "x_moment_array": Kind(
        "timestamptz[]", ("{infinity,-infinity,NULL}", "{0044-03-15 12:00:00+00 BC}", "{}"), _ARRAY, _LISTED
    ),
    "x_bytes_array": Kind("bytea[]", ('{"\\\\x00","\\\\xff"}', "{}", "{NULL}"), _ARRAY, _LISTED),
    "x_jsonb_array": Kind("jsonb[]", ('{"{\\"a\\": 1}",NULL}', "{}", '{null,"1.0"}'), _ARRAY, _LISTED),
    "x_range_array": Kind("int4range[]", ('{"[1,5)",empty}', "{}"), _ARRAY, _LISTED),
    "x_wide": Kind(
        "numeric(39,1)",
        ("9" * 38 + ".9", "NaN", "0.0", "-1.5"),
        ("{c} > 0", "{c} = 'NaN'"),
        ("{c} + 1",),
        extremes=True,
    ),
    "x_hundreds": Kind("numeric(5,-2)", ("1234500", "-99900", "0"), ("{c} > 0",), ("{c} / 3",), extremes=True),
    "x_fraction": Kind(
        "numeric(18,18)",
        ("-0.999999999999999999", "0.000000000000000001", "0.5", "0"),
        ("{c} > 0",),
        ("{c} * 3", "-{c}"),
        extremes=True,
    ),
    "x_seconds": Kind(
        "timestamptz(0)",
        ("2020-01-01 00:00:01+00", "1969-12-31 23:59:59+00"),
        ("{c} < '1970-01-01 00:00:00.5+00'",),
        extremes=True,
    ),
    "x_months": Kind(
        "interval year to month", ("-1 year 3 months", "1 mon", "0"), ("{c} > '0'",), ("{c} * 2",), extremes=True
    ),
}
COLUMNS = "".join(f", {name} {kind.type}{kind.also}" for name, kind in KINDS.items())
XML = "x_xml"  # where Postgres was built with it
XML_VALUES = ("<a>é &amp; ü</a>", "text only", "<a/><b x='1'/>", "<!-- c --><a><![CDATA[ <x> ]]></a>")
