"""Values at the edges of every built-in type, as text that its input function takes."""

from __future__ import annotations

_MOMENTS = (
    *("4713-01-01 00:00:00 BC", "0044-03-15 12:34:56.789 BC", "0001-12-31 23:59:59.999999 BC", "0001-01-01 00:00:00"),
    *("1582-10-10 00:00:00.000001", "1969-12-31 23:59:59.999999", "1970-01-01", "2000-02-29 12:00", "9999-12-31"),
    *("10000-01-01", "287396-12-31 23:59:59.999999", "294246-12-31 23:59:59.999999"),
)
_PLANES = tuple(
    "".join(chr(plane * 0x10000 + at) for at in (0x1, 0x41, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF)) for plane in range(17)
)
_TEXTS = (
    *("", " ", "a", "NULL", "null", "\\N", "tab\tline\nreturn\r", "quote\" ' back\\slash", "{a,b}", "(x,y)", "%_"),
    *("e\u0301 é ß ﬁ", "日本語", "👍🏽", "\u200b\ufeff", "\x01\x02\x1f\x7f", "x" * 5000, *_PLANES),
)

EDGES: dict[str, tuple[str, ...]] = {
    "bool": ("t", "f"),
    "int2": ("-32768", "-1", "0", "1", "32767"),
    "int4": ("-2147483648", "-1", "0", "1", "2147483647"),
    "int8": ("-9223372036854775808", "-1", "0", "1", "9007199254740993", "9223372036854775807"),
    "oid": ("0", "1", "2147483648", "4294967295"),
    "float4": ("NaN", "Infinity", "-Infinity", "0", "-0", "1e-45", "0.1", "16777217", "3.4028235e38", "-3.4028235e38"),
    "float8": (
        *("NaN", "Infinity", "-Infinity", "0", "-0", "5e-324", "2.2250738585072014e-308", "0.1", "0.30000000000000004"),
        *("9007199254740993", "1.7976931348623157e308", "-1.7976931348623157e308"),
    ),
    "numeric": (
        *("NaN", "Infinity", "-Infinity", "0", "0.00", "-0.10", "1e-30", "123456789012345678901234567890.5"),
        *("1" + "0" * 1000, "0." + "0" * 1000 + "1", "9" * 131072),
    ),
    "date": ("4713-01-01 BC", "0044-03-15 BC", "0001-01-01", "1582-10-10", "1970-01-01", "9999-12-31", "5874897-12-31"),
    "timestamp": _MOMENTS,
    "timestamptz": tuple(f"{m.removesuffix(' BC')}+00{' BC' if m.endswith(' BC') else ''}" for m in _MOMENTS),
    "uuid": (
        *("00000000-0000-0000-0000-000000000000", "7fffffff-ffff-ffff-ffff-ffffffffffff"),
        *("80000000-0000-0000-8000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ),
    "bytea": (
        "\\x",
        "\\x00",
        "\\x5c",
        "\\x00ff7f80",
        "\\x" + "ab" * 5000,
        "\\x" + "".join(map("{:02x}".format, range(256))),
    ),
    "text": _TEXTS,
    "varchar": _TEXTS,
    "bpchar": ("", "a", "a  ", "  ", "日本  ", "ab\n "),
    "name": ("", "a", "Odd \"name'\\", "x" * 63, "日本語"),
    "bit": ("0", "1"),
    "box": ("(1,2),(-3,-4.5)", "(Infinity,NaN),(-Infinity,0)", "(0.1,1e300),(0.3,5e-324)"),
    "char": ("", "a", "\\", "'", "~"),
    "cid": ("0", "4294967295"),
    "cidr": ("0.0.0.0/0", "10.1.0.0/16", "::/0", "2001:db8::/32"),
    "circle": ("<(0.1,-0.2),0>", "<(1e300,Infinity),5e-324>"),
    "datemultirange": ("{}", "{[2020-01-01,2020-02-01),[9999-12-31,)}", "{(,)}", "{[-infinity,infinity)}"),
    "daterange": ("empty", "[0044-03-15 BC,infinity]", "(,)", "[2020-01-01,2020-01-02)"),
    "inet": ("10.0.0.1/8", "10.0.0.1", "::1", "fe80::1/64", "::ffff:1.2.3.4", "0.0.0.0/0"),
    "int2vector": ("", "1", "-32768 0 32767"),
    "int4multirange": ("{}", "{[1,5),[7,)}", "{(,)}"),
    "int4range": ("empty", "[-2147483648,2147483647)", "(,)", "[1,2)"),
    "int8multirange": ("{}", "{[-9223372036854775808,0),[5,)}"),
    "int8range": ("empty", "[-9223372036854775808,9223372036854775807)"),
    "interval": (
        *(
            "0",
            "-1 year +2 days -03:04:05.678",
            "178000000 years",
            "-178000000 years",
            "0.000001 s",
            "-00:00:00.000001",
        ),
        *("2147483647 days", "-2147483648 months", "24:00:00", "1 day -24:00:00", "2562047788:00:54.775807"),
    ),
    "json": ('{"a" : 1 , "a": 2}', "null", " [1, 2 ] ", '"\\u00e9\\ud83d\\ude00"', "1.50"),
    "jsonb": ('{"b": [1, null, "x"]}', "null", "[]", '"é😀"', "1.50", "1" + "0" * 400, '{"": {"k": -0.0}}'),
    "jsonpath": ("$", '$."a b"[*] ? (@.x > 1.5 && @.y like_regex "^a")', "lax $.**{2 to last}"),
    "line": ("{1,-1,0}", "{0.1,1e-300,NaN}"),
    "lseg": ("[(0,0),(1,1)]", "[(-0,NaN),(Infinity,0.1)]"),
    "macaddr": ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "08:00:2b:01:02:03"),
    "macaddr8": ("00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff"),
    "nummultirange": ("{}", "{[0.10,1.50),(2,)}"),
    "numrange": ("empty", "(0.10,1e40]", "(,)", "[NaN,NaN]"),
    "oidvector": ("", "0 1 4294967295"),
    "path": ("[(0,0),(1,1)]", "((0.1,2),(3,-4e-300),(5,6))"),
    "pg_lsn": ("0/0", "FFFFFFFF/FFFFFFFF", "16/B374D848"),
    "pg_snapshot": ("10:20:10,14,15", "1:1:"),
    "point": ("(0,0)", "(-0,NaN)", "(Infinity,-Infinity)", "(0.1,5e-324)"),
    "polygon": ("((0,0),(1,1),(2,0))", "((0.1,-0.2))"),
    "refcursor": ("", "c1", "Odd \"cursor'"),
    "regclass": ("pg_class", "public.events", "0", "4000000000"),
    "regcollation": ('"C"', "0"),
    "regconfig": ("english", "simple"),
    "regdictionary": ("simple",),
    "regnamespace": ("public", "pg_catalog"),
    "regoper": ("pg_catalog.||/", "0"),
    "regoperator": ("+(integer,integer)", "0"),
    "regproc": ("pg_catalog.now", "0"),
    "regprocedure": ("abs(integer)", "0"),
    "regrole": ("pg_monitor",),
    "regtype": ("integer", "public.pair", "timestamp with time zone", "4000000000"),
    "tid": ("(0,0)", "(4294967295,65535)"),
    "time": ("00:00", "23:59:59.999999", "24:00", "12:34:56.789"),
    "timetz": ("00:00+14", "24:00-15:59", "12:34:56.789+05:45", "23:59:59.999999+00"),
    "tsmultirange": ("{}", "{[0044-03-15 BC,infinity)}"),
    "tsquery": ("'fat' & ( 'rat' | !'cat':AB ) <2> 'x''y'", ""),
    "tsrange": ("empty", "[-infinity,294276-12-31]", "(,)"),
    "tstzmultirange": ("{}", "{[2020-01-01 00:00+02,2020-01-02 00:00-11:30)}"),
    "tstzrange": ("empty", "[2020-03-29 01:30+00,infinity)", "(,)"),
    "tsvector": ("", "'a':1A,2 'b c':3 'it''s' 'x\\\\y'"),
    "txid_snapshot": ("10:20:10,14,15",),
    "varbit": ("", "1", "101" * 30),
    "xid": ("0", "4294967295"),
    "xid8": ("0", "18446744073709551615"),
    "xml": ("<a>é &amp; ü</a>", "text only", "<a/><b x='1'/>", "<!-- c --><a><![CDATA[ <x> ]]></a>"),
}
# Of types with a modifier, columns of their own.
MODIFIED: dict[str, tuple[str, ...]] = {
    "numeric(1,0)": ("-9", "0", "9"),
    "numeric(9,2)": ("-9999999.99", "0.00", "0.01", "9999999.99"),
    "numeric(18,18)": ("-0.999999999999999999", "0.000000000000000001"),
    "numeric(19,3)": ("-9999999999999999.999", "0.001"),
    "numeric(38,0)": ("9" * 38, "-" + "9" * 38, "0"),
    "numeric(38,38)": ("0." + "9" * 38, "-0." + "0" * 37 + "1"),
    "numeric(39,1)": ("9" * 38 + ".9", "NaN"),
    "numeric(5,-2)": ("1234500", "-99900"),
    "numeric(3,5)": ("0.00999", "-0.00001"),
    "varchar(3)": ("", "abc", "日本語", "  "),
    "char(5)": ("", "ab", "日本語", " a"),
    "bit(4)": ("1010",),
    "varbit(9)": ("101", ""),
    "timestamp(0)": ("2020-01-01 00:00:01",),
    "timestamptz(3)": ("2020-01-01 00:00:00.123+00",),
    "time(2)": ("12:34:56.78",),
    "interval year to month": ("-1 year 3 months",),
    "interval second(3)": ("1.234",),
}
OWN = """
CREATE TYPE public.mood AS ENUM ('sad', 'it''s "ok"', 'ürgh, {x}');
CREATE TYPE public.pair AS (a int, b text, c numeric(9, 2));
CREATE TYPE public.nested AS (p public.pair, l int[], m public.mood, w timestamptz, x bytea);
CREATE TYPE public.floatrange AS RANGE (subtype = float8, multirange_type_name = floatmulti);
CREATE DOMAIN public.positive AS int CHECK (VALUE > 0);
CREATE DOMAIN public.more AS public.positive CHECK (VALUE > 1);
CREATE DOMAIN public.money2 AS numeric(12, 2);
CREATE DOMAIN public.pairs AS public.pair;
CREATE DOMAIN public.list AS int[];
CREATE DOMAIN public.moods AS public.mood;
CREATE DOMAIN public.span AS public.floatrange;
CREATE DOMAIN public.table_ AS regclass;
"""
OWN_EDGES: dict[str, tuple[str, ...]] = {
    "public.mood": ("sad", 'it\'s "ok"', "ürgh, {x}"),
    "public.pair": ('(1,"x, y",0.10)', "(,,)", '(-2147483648,"",)', '(0,"a ""q"" \\\\ )(",9999999.99)'),
    "public.nested": ('("(1,x,0.00)","{1,NULL,3}",sad,"2020-01-01 00:00:00.000001+00","\\\\x00ff")', "(,,,,)"),
    "public.floatrange": ("empty", "[-Infinity,0.1)", "(,)", "(5e-324,1e308]"),
    "public.floatmulti": ("{}", "{[0.1,0.3),(1,)}"),
    "public.positive": ("1", "2147483647"),
    "public.more": ("2",),
    "public.money2": ("-9999999999.99", "0.00"),
    "public.pairs": ("(1,a,0.01)",),
    "public.list": ("{}", "{1,NULL}", "[0:1]={7,8}", "{{1,2},{3,4}}"),
    "public.moods": ("sad",),
    "public.span": ("[1,2]",),
    "public.table_": ("pg_class",),
    "public.mood[]": ("{}", "{sad,NULL}", '{{"it\'s \\"ok\\""}}'),
    "public.pair[]": ('{"(1,\\"x, y\\",)",NULL}',),
    "public.floatrange[]": ('{"[0.1,1)",empty}',),
    "public.positive[]": ("{1,NULL}",),
    "int[]": ("{}", "{NULL}", "[-5:-4]={1,2}", "[0:0][2:3]={{1,NULL}}", "{{{1},{2}},{{3},{4}}}"),
    "text[]": ("{}", '{NULL,"NULL",""," a ","\\"","\\\\","{","," }', '{{"é😀","tab\t"}}'),
    "numeric(9,2)[]": ("{0.10,NaN,NULL}",),
    "timestamptz[]": ("{infinity,-infinity,NULL,0044-03-15 12:00:00+00 BC}",),
}
