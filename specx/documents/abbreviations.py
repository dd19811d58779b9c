"""English abbreviations that end in a period, in lower case and without that period."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# After these a sentence goes on.
GO_ON = _words("""
    mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt cmdr adm gov sen rep pres supt messrs
    e.g i.e cf viz vs approx ca resp incl esp figs eqs secs subsec u.s.c c.f.r
""")

# After these it may end; the next word decides.
MAY_END = _words("""
    u.s u.k u.n e.u d.c a.m p.m ph.d m.d b.a m.a etc al inc ltd co corp dept univ assn bros est
    jan feb mar apr jun jul aug sep sept oct nov dec ave blvd rd min max avg
""")

# These are words too ("No."), and abbreviations only in front of a number.
BEFORE_NUMBER = _words("""
    no nos art arts sec ch chap fig tab ed eds ref refs para paras sect stat reg fed pub cong
    v ft mt vol vols p pp eq
""")

# Words that begin sentences far more often than they follow an abbreviation such as "U.S."
STARTERS = _words("""
    the this that these those it he she they we you i in on at by for from with as but and or if
    when while although however moreover a an its their there here our his her who what why how
    after before since during under over some many most each all both such no not to
""")
