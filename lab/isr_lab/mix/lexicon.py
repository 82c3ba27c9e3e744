"""Hand-made tables for contrastive pairs: words that exclude each other, and words that mean the same."""

from __future__ import annotations


def _words(text: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(text.split(separator))


EXCLUSIVE: tuple[tuple[str, ...], ...] = (
    ("boy band", "girl band"),
    ("boy group", "girl group"),
    ("father", "mother"),
    ("son", "daughter"),
    ("sons", "daughters"),
    ("brother", "sister"),
    ("brothers", "sisters"),
    ("husband", "wife"),
    ("uncle", "aunt"),
    ("nephew", "niece"),
    ("grandfather", "grandmother"),
    ("grandson", "granddaughter"),
    ("king", "queen"),
    ("prince", "princess"),
    ("male", "female"),
    ("man", "woman"),
    ("men", "women"),
    ("boys", "girls"),
    ("maternal", "paternal"),
    ("older", "younger"),
    ("elder", "younger"),
    ("oldest", "youngest"),
    ("eldest", "youngest"),
    ("before", "after"),
    ("north", "south", "east", "west"),
    ("northern", "southern", "eastern", "western"),
    ("northeast", "northwest", "southeast", "southwest"),
    ("northeastern", "northwestern", "southeastern", "southwestern"),
    ("largest", "smallest"),
    ("highest", "lowest"),
    ("longest", "shortest"),
    ("larger", "smaller"),
    ("higher", "lower"),
    ("won", "lost"),
    ("winner", "runner-up"),
    ("victory", "defeat"),
    ("above", "below"),
    ("increased", "decreased"),
    ("rose", "fell"),
    ("upper", "lower"),
    ("private", "public"),
    ("professional", "amateur"),
    ("natural", "synthetic"),
    ("major", "minor"),
    ("indoor", "outdoor"),
    ("Democratic", "Republican"),
    ("Army", "Navy", "Air Force"),
    ("gold medal", "silver medal", "bronze medal"),
    ("guitarist", "drummer", "bassist", "keyboardist", "violinist", "cellist"),
    ("lawyer", "architect", "painter", "physicist", "economist", "botanist", "sculptor", "surgeon", "chemist"),
    ("goalkeeper", "defender", "midfielder", "striker"),
    ("footballer", "cricketer", "swimmer", "cyclist", "sprinter", "golfer", "boxer", "wrestler", "fencer"),
    ("football", "basketball", "baseball", "ice hockey", "cricket", "rugby", "tennis", "volleyball", "handball"),
    ("album", "film", "novel", "television series", "video game"),
    ("documentary", "musical", "comedy", "thriller", "western", "horror"),
    ("jazz", "country", "punk", "hip hop", "folk", "metal", "reggae"),
    ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    (
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ),
    ("spring", "summer", "autumn", "winter"),
    ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    ("river", "lake", "mountain", "island"),
    ("hospital", "museum", "prison", "theatre", "library"),
    ("moth", "beetle", "spider", "frog", "snail", "orchid"),
    ("acquired", "sold"),
    ("joined", "left"),
    ("opened", "closed"),
    ("accepted", "rejected"),
    ("arrived", "departed"),
    ("succeeded", "preceded"),
    ("began", "ended"),
    ("fiction", "non-fiction"),
    ("bachelor's", "master's"),
    ("live album", "studio album", "compilation album"),
    ("quarterback", "linebacker", "wide receiver", "running back"),
    ("pitcher", "catcher", "outfielder", "shortstop"),
    ("Catholic", "Lutheran", "Methodist", "Baptist", "Presbyterian"),
)
"""Sets within which a word may take the place of another; no two of one set hold of the same thing at once."""

SAME: tuple[tuple[str, str], ...] = (
    (r"\bis located in\b", "lies in"),
    (r"\blocated in\b", "situated in"),
    (r"\bapproximately\b", "about"),
    (r"\bbegan\b", "started"),
    (r"\bpurchased\b", "bought"),
    (r"\bchildren\b(?!['’])", "kids"),
    (r"\bUnited States\b", "US"),
    (r"\bUnited Kingdom\b", "UK"),
    (r"\bfilm\b", "movie"),
    (r"\bfilms\b", "movies"),
    (r"\bbest known for\b", "most famous for"),
    (r"\bserved as\b", "was"),
    (r"\bplayed the role of\b", "played"),
    (r"\bpopularly known as\b", "commonly called"),
    (r"\balso known as\b", "also called"),
    (r"\bwas created by\b", "was made by"),
    (r"(?<!was |ere |een )\battended\b", "went to"),
    (r"(?<!was |ere |een )\breceived\b", "got"),
    (r"\bnear\b", "close to"),
    (r"\bprimarily\b", "mainly"),
    (r"\bpassed away\b", "died"),
    (r"\bdied\b", "passed away"),
    (r"\bmarried\b", "wed"),
    (r"\bcomprises\b", "consists of"),
    (r"\bestablished\b", "set up"),
    (r"\bconstructed\b", "built"),
    (r"\bassisted\b", "helped"),
    (r"\bsubsequently\b", "later"),
    (r"\bfounded\b", "established"),
)
"""Patterns and wordings of the same meaning, put into both twins so that a claim is not a mere copy."""

NATIONALITIES = _words(
    "American Argentine Australian Austrian Belgian Brazilian Bulgarian Canadian Chilean Chinese Colombian Croatian "
    "Cuban Czech Danish Dutch Egyptian Estonian Finnish French German Greek Hungarian Icelandic Indian Indonesian "
    "Iranian Irish Israeli Italian Jamaican Japanese Kenyan Korean Latvian Lebanese Lithuanian Malaysian Mexican "
    "Moroccan Nigerian Norwegian Pakistani Peruvian Polish Portuguese Romanian Russian Serbian Slovak Slovenian "
    "Spanish Swedish Swiss Thai Turkish Ukrainian Vietnamese"
)
"""Adjectives that may be swapped; British and its parts are left out because they hold together."""

COUNTRIES = _words(
    "Afghanistan,Albania,Algeria,Argentina,Armenia,Australia,Austria,Azerbaijan,Bahrain,Bangladesh,Belgium,"
    "Bolivia,Brazil,Bulgaria,Cambodia,Canada,Chile,China,Colombia,Croatia,Cuba,Cyprus,Denmark,Ecuador,Egypt,"
    "Estonia,Ethiopia,Finland,France,Germany,Ghana,Greece,Guatemala,Hungary,Iceland,India,Indonesia,Iran,Iraq,"
    "Ireland,Israel,Italy,Jamaica,Japan,Jordan,Kazakhstan,Kenya,Kuwait,Laos,Latvia,Lebanon,Libya,Lithuania,"
    "Malaysia,Malta,Mexico,Mongolia,Morocco,Nepal,New Zealand,Nigeria,Norway,Pakistan,Panama,Paraguay,Peru,"
    "Poland,Portugal,Qatar,Romania,Russia,Senegal,Serbia,Singapore,Slovakia,Slovenia,Somalia,South Africa,"
    "South Korea,Spain,Sri Lanka,Sudan,Sweden,Switzerland,Syria,Taiwan,Tanzania,Thailand,Tunisia,Turkey,Uganda,"
    "Ukraine,Uruguay,Venezuela,Vietnam,Zambia,Zimbabwe",
    ",",
)
"""Countries that may be swapped for each other; the United Kingdom and its parts are left out."""

LOCATIVE = _words("in near from at of to around outside through")
"""Prepositions behind which a place name is taken for a place."""

HEADWORDS = _words(
    "airport album band book building church city club college company district documentary episode festival film "
    "game genus group hospital magazine mountain movie municipality museum newspaper novel opera organization park "
    "play river road school season series show single song species stadium station team theatre town tournament "
    "university village"
)
"""What a page may be about and be called by: "the album" on the page of an album."""

UNIQUE_EVENTS = _words(
    "be bear build complete construct create die dissolve establish form found launch open premiere publish release win"
)
"""Verbs of what happens once: denying it of another year follows from the right one."""

CONTAINING = _words(
    "Africa America Asia Baltic Britain California Caribbean Czech Empire England Europe Ireland Islands Kingdom "
    "London Netherlands New Northern Peninsula Philippines Republic Rico Roman Scotland Soviet States Texas The "
    "UK US USA Union United Wales York the"
)
"""Words of places so large, or with so many names, that a swap may leave a claim true."""

STATIVE = _words(
    "be have live die bear know contain belong consist remain include mean seem appear exist lie cost weigh survive "
    "result suffer stand last comprise feature fall lose fail see hear say state claim report believe think need "
    "want plan hope attempt try intend refuse begin start continue stop cease help let become form rise"
)
"""Verbs of states and beginnings, which read badly behind "managed to" or "refused to"."""

NO_PASSIVE = _words("be have marry meet resemble join know become call name consider border face include")
"""Verbs that are not turned into the passive: both sides alike, or naming."""

ASKING = _words(
    "the a an of in on at to for by and or is was were are did does do what which who whom whose when where how many "
    "much why with from that this it its as be been has have had one name type kind"
)
"""Words of a question that do not say what it is about."""

SMALL = _words("a an and at by de for from in of on the to von vs with")
"""Words that are written small within titles."""
