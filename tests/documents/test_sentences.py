import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.documents.sentences import count_words, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["The river rose.", "The town waited."],
        ["Mr. Smith met Dr. J. R. Jones at St. Mary.", "They spoke."],
        ["It was sold in the U.S. Government market.", "Then it ended."],
        ["He moved to the U.S.", "The others stayed."],
        ["See Fig. 3 and No. 5 of the list, e.g. Table 2.", "Good."],
        ["Is the answer no?", "No.", "It is yes!", "Really…", "Yes."],
        ["It rose by 3.5 percent to 1.2 million.", "In 2019 it fell."],
        ["“We are done.”", "She left (at last.)", "Nobody followed."],
        ["Fruit, meat, etc. were sold.", "Bread, etc.", "They left."],
        ["1. The first point is short.", "2. The second is not."],
        ["Smith et al. (2019) agree.", "Others do not."],
        ["The meeting began at 9 a.m. on Monday.", "It was long."],
        ["It opened on Jan. 5 and closed on Dec. 12.", "Few came."],
        ["Pub. L. No. 104-193 changed that.", "So did 42 U.S.C. 601."],
        ["Wait... what is this?", "Nothing."],
    ],
)
def test_split(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


# Each line is a text, and its sentences end at the signs |.
_TEXTS = """
The rule of Adams v. Miller was applied.|The court then turned to costs.
It relied on United States v. Lang, decided in 2022.|No one objected.
The holding of Miller vs. Lang still stands.|It was affirmed.
The parties agree (Dkt. 14) that the motion is moot.|They withdrew it.
See Dkt. No. 14 at 3.|The court disagrees.
Call (555) 010-0100, ext. 123, before noon.|The office is open.
The rule is set out in Fed. R. Civ. P. 56(a).|It is strict.
Under Fed. R. Evid. 702, an expert may testify.|The judge decides.
Robles, et al. v. Keller, et al., Case No. 00-12345, was argued in May.|A decision is due.
The work of Smith et al. shows this.|The later work of Jones et al.|The data were lost.
He met counsel from Miller & Sons Inc. and the city.|They agreed.
The mill was bought by Acme Inc.|The price was not told.
Lt. Col. James Weller commanded the depot.|He left in 1944.
Maj. Gen. Anna Roth and Sgt. Maj. Lee spoke.|The hall was full.
The plant is in St. Louis, Mo. 63101, near the river.|It is old.
Contact us at 12 Main St., Springfield, Ill. 62701.|We answer.
That was settled (1st Cir. 2021) long ago.|Nothing changed.
See 123 F. Supp. 2d 456 (S.D.N.Y. 2001).|The reasoning holds.
As Adams, 123 F.3d 4, 5 (9th Cir. 1997) (Smith, J., dissenting), shows, it may.|We agree.
The claim arises under 42 U.S.C. § 1983 and 28 C.F.R. § 35.104.|It fails.
He is liable under 42 U.S.C.|The court said so.
The hearing is at 5 p.m.|The court will sit in room 3.
It opened at 9 a.m. on Monday.|Few came.
It was made in the U.S.|The rest was imported.
The U.S. Department of Energy paid.|The U.S. Supreme Court agreed.
The ordinance (No. 5) was amended.|See Nos. 6 and 7 of the list.
The answer is no.|Five members left.
The answer was No.|The vote was lost.
§ 12. The tenant shall pay the rent.|§ 13. The landlord shall repair the roof.
Art. 5 of the treaty applies.|Art. 6 does not.
Sec. 4. The board shall meet twice a year.|Sec. 5. It may meet more often.
Cf. Smith, cf. also Lang.|The matter is open.
Some metals, e.g. iron and zinc, rust.|Others, i.e. gold, do not.
On Jan. 5 the river froze.|On Feb. 6 it thawed.
It closed in Dec.|The ice came late.
See p. 12 and pp. 14–16, ch. 3, vol. II, and Fig. 3.|The rest follows.
The results are shown in Fig. 3.|Table 2 lists them.
The results (see Figs. 3 and 4, Eq. 7) agree.|They are new.
J. R. R. Tolkien and C. S. Lewis met there.|They talked.
The author is John F. Kennedy.|He wrote it in 1955.
It was signed by Judge A. B. Carter.|The clerk sealed it.
Prof. Dr. M. Braun leads it.|Mrs. Dalloway and Ms. Lee help.
John Smith, Ph.D., and Mary Lee, M.D., wrote it.|It was short.
She has a Ph.D.|The thesis was on moss.
Die Mühle ist z. B. im Winter zu.|Im Sommer, d. h. ab Juni, ist sie offen.
Das gilt z.B. für Holz, Stein usw. und für Glas.|Mehr ist nicht bekannt.
Nach Art. 5 Abs. 2 und Nr. 7 ist das möglich.|Die Frist beträgt ca. 14 Tage.
Am 3. Oktober begann das Fest.|Am 12. März endete es.
Der 2. Weltkrieg begann 1939.|Er dauerte sechs Jahre.
Siehe S. 12 ff. und Bd. 3.|Der Rest folgt.
M. Dupont et Mme. Leroy ont parlé.|MM. Petit et Roux ont écouté.
Voir art. 5, al. 2, et p. ex. le n° 7.|La suite est connue.
Selon l'art. L. 121-3 du code, il peut agir.|Il ne l'a pas fait.
El Sr. García y la Sra. López llegaron.|El Dr. Ruiz no vino.
Vive en la Av. Juárez, núm. 12, 3.er piso.|Es caro.
EE. UU. firmó el pacto.|México también.
Wait... what is this?|Nothing.
He paused … and went on.|No one spoke.
He stopped. . . .|Then he went on.
“We are done.”|She left.
“Are we done?” she asked.|“Yes!” said he.
He said “no.”|Nobody followed.
She left (at last.)|Nobody followed.
It costs $3.50 or 1.2 million.|In 2019 it was 4.
Version 2.0.|It was better.
See http://example.org/a.html for more.|Write to a.b@example.org.|We answer.
The site is www.example.org.|It is slow.
It is 3.5 km away.|The road is bad.
The mill has an area of 400 sq. ft. and a wheel of 3 in. width.|It turns.
It grew by approx. 5 percent vs. last year.|That is a lot.
Washington, D.C., is the capital.|D.C. Circuit judges sit there.
He lives in Washington, D.C.|The street is quiet.
Gov. Brown and Sen. Ruth Gray met Rep. Lee.|They agreed.
The firm Brown Bros. & Co. sold it to Hall Ltd. in May.|It was cheap.
The firm is Hall Corp.|It is old.
Mt. Baker and Ft. Worth are far.|So is St. Paul.
The panel (Lang, Roth & Weller, JJ.) affirmed.|It gave no reasons.
Plaintiff filed Exh. A and Ex. B (Compl. ¶ 7; Decl. of Lang ¶ 3).|Defendant did not answer.
Id. at 5.|The court went on.
See id. at 7; see also Ans. at 3.|He denies it.
The court held a trial (Tr. 44:1-5; R. 12; App. 3).|It was short.
I am here.|So am I.|You are not.
Plan B.|It was worse.
He got vitamin C.|It helped.
This is option A.|The other is option B.
What is the point?|There is none!|Really?
The list (nuts, bolts, etc.) is long.|Nuts, bolts, etc.|The rest is short.
Fruit, meat, etc. were sold.|They left.
Bread etc.|They left.
The committee met on Tues. and Wed. of that week.|It rained.
He was born c. 1850 in Ky. and raised in Penn.|He died young.
Approved by Hon. Maria Robles, U.S.D.J.|The order follows.
See Restatement (Second) of Torts § 402A cmt. b (Am. L. Inst. 1965).|It is old.
Smith v. State, 12 So. 3d 45 (Fla. Dist. Ct. App. 2009), holds so.|We follow it.
Per Cal. Civ. Proc. Code § 425.16, the motion is granted.|Costs follow.
The S. Ct. said so in 141 S. Ct. 1017.|We must follow.
The company (NYSE: ABC) earned $1.2 bn.|It lost 3 mn. in 2009.
The meeting of Sept. 11 was long.|The one of Oct. was short.
Dr. Strangelove et al. agreed.|They left.
Messrs. Hall and Roth left.|Rev. King stayed.
The U.N. Security Council met.|The E.U. did not.
No. 5 is alive.|No.|That is wrong.
No.|That is wrong.
The value was 5.|The next was 6.
In 1990.|Then came 1991.
It was 20 ft. long.|It was 3 lb. heavy.|It was 5 oz. light.
Add 2 tbsp. of oil.|Stir for 5 min. and wait.
The Dept. of Labor and the Univ. of Ohio paid.|The Assn. of Mayors did not.
Smith Jr. spoke first.|Smith Sr. followed.
The speaker was Martin Hall Jr.|He was tired.
Vol. 3, No. 2, pp. 5–9, was lost.|It was found.
Op. cit., p. 5; loc. cit.; ibid., p. 7.|The source is old.
The town lies at lat. 45 N. and long. 12 E. of the sea.|It is small.
Gen. Stat. § 14-7 applies.|Rev. Code ch. 5 does not.
Pub. L. No. 104-193 changed that.|So did 42 U.S.C. 601.
See Exec. Order No. 12,866, 58 Fed. Reg. 51,735 (Oct. 4, 1993).|It binds.
The temperature was 5 °C.|Water froze.
Temperatures reached 30 °C.|The grass died.
This follows from Thm. 3 and Lem. 4, resp. Cor. 5.|The proof is short.
E. coli and S. aureus grow fast.|H. pylori does not.
It was found in E. coli.|Other bacteria lack it.
The agent said: “Wait.|I am coming.”|He came.
The suit names Hall Mfg. Co. and two of its officers.|Both deny it.
Mr. Ortega, Esq., filed a brief on Nov. 3.|He asked for leave.
The rule was amended in 2015 (Fed. R. Civ. P. 26(b)(1)).|It now speaks of proportionality.
See Appellant's Br. 12; J.A. 45.|The argument is waived.
He cites Tex. Gov't Code Ann. § 552.101.|It does not apply.
In re Grand Jury, 12 F.4th 34, 40 (D.C. Cir. 2020), is not to the contrary.|It concerned a subpoena.
The Hon. Ruth B. Lang presided.|She retired in 2001.
The bill (H.R. 12) passed.|The Senate (S. 45) did not act.
Nominees are listed in Attach. C and Sched. 2.|They were approved.
The grant is $4.5 million.|Of this, $2 million is for roads.
The meeting was called to order at 7:00 p.m. by Mayor Hill.|All were present.
The motion was made by Mrs. Green.|Mr. Brown seconded.
It adjourned at 9:15 p.m.|Minutes were kept by the clerk.
The section is 5 ft. 3 in. wide.|It holds.
Apply 2 gal. per acre.|Do not exceed 5 lb. a year.
Nitrogen (N) and phosphorus (P) matter.|Potassium (K) does as well.
We use the method of Lee et al. [12].|Our data are new.
We thank Dr. K. Sato for help.|The work was paid for by the state.
As shown in Sec. 3.2 and App. B, it holds.|We omit the proof.
Let G be a graph with n vertices.|Then G has a cycle.
The bound is tight for n = 3.|For larger n it is open.
This is vol. 3 of the series.|Volume 4 is due.
(He was late.)|She was not.
He was late.|(She was not.)|They left.
He was late (she was not. That is all we know about it).|They left.
"Stop!" he cried.|"Why?" she asked.
Is it true that "nothing is free"?|Yes.
The treaty was signed in Washington, D.C., on Jan. 5, 1921.|It failed.
The U.S. Court of Appeals for the 9th Cir. affirmed.|Certiorari was denied.
The U.S. is large.|The U.K. is small.
Mount St. Helens erupted.|Ash fell in Wash. and Ore.
Gov. J. B. Hunt signed it.|It took effect on Oct. 1.
A. The first option is cheap.|B. The second is not.
I. The court has jurisdiction.|II. The claim is timely.
1.2. The supplier shall deliver.|1.3. The buyer shall pay.
(a) The tenant pays.|(b) The landlord repairs.
Herr Dr. Braun kam am 5. Mai.|Er blieb bis zum 7. Juni.
Das Werk (Bd. 2, S. 45 f.) ist alt.|Es wurde 1890 gedruckt.
Die Länge beträgt 5 m.|Die Breite ist kleiner.
Il habite au 5, av. de la Gare.|Il est vieux.
La ley (art. 12, párr. 3) no cambia.|Se aplica desde 1990.
Mme Roux, née en 1950, est partie.|Elle vit à Lyon.
The ratio is approx. 3:1.|It was 2:1 before.
Items incl. tax cost more.|Those w/o tax cost less.
It suspended Richard P. Lieb on Monday.|Richard P. may answer.
Many were filed.|Doc. 1.|More were filed by May, see Docs. 18, 19.|Few were left.
Here they were.|The others are gone. :
The index fell to 7.|Eight firms closed.
We ran it on v. 2.3 and v. 2.4.|Both failed.
The company, Inc. magazine wrote, is small.|It is not.
She works for Apple Inc.|He works for Ford Motor Co.|They met at Yale Univ.
The deadline is Friday, Dec. 3, at 5 p.m. PST.|Late bids are void.
Comments are due by 5 p.m. EST on Mar. 1.|Send them to J. Doe.
He said that “the law is the law.”|No one laughed.
The act, P.L. 94-142, was new.|Its aim was clear.
Smith, J., concurred.|Roth, C.J., wrote for the court.
WE HOLD THAT THE ACT IS VOID.|THE JUDGMENT IS REVERSED.
ADAMS V. LANG IS CITED.|IT IS OLD.
"""


@pytest.mark.parametrize("text", _TEXTS.strip().split("\n"))
def test_sentences_are_whole(text: str) -> None:
    assert split_sentences(text.replace("|", " ")) == text.split("|")


@pytest.mark.parametrize(
    "sentences",
    [
        ["委员会在旧市政厅开会。", "它读了报告！", "真的吗？", "是的。"],
        ["他说：“你好。”", "然后走了。"],
        ["「行くよ！」と言った。", "次の文。"],
        ["यह पहला वाक्य है।", "यह दूसरा है।"],
        ["هل هذا صحيح؟", "نعم۔", "انتهى"],
    ],
)
def test_full_stops_of_other_scripts_need_no_space(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences
    assert split_sentences(" ".join(sentences)) == sentences


def test_a_quotation_goes_on_behind_a_comma() -> None:
    assert split_sentences("“你好！”，他说。") == ["“你好！”，他说。"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("sign", [".", ".\"'", "。", "!?", "Mr. "])
def test_long_runs_take_little_time(sign: str) -> None:
    assert split_sentences(sign * 100_000 + "x")


def test_nothing_gives_nothing() -> None:
    assert split_sentences(" \n ") == []


@given(st.text(alphabet=st.sampled_from("abcAB .!?\"')(12U.S\n…"), max_size=80))
def test_nothing_is_lost(text: str) -> None:
    assert " ".join(split_sentences(text)) == " ".join(text.split())


@given(st.text(max_size=60))
def test_nothing_is_lost_of_any_text(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("The council met on 3 May.", 6),
        ("- one — two\n\n* three", 3),
        ("a well-known author's 3.5% share", 5),
        ("委员会认为", 5),
        ("委员会 met 3 次。", 6),
        ("会議は五月に開かれた。", 10),
        ("위원회는 5월에 모였다.", 3),
        ("คณะกรรมการประชุมกัน", 4),
        ("Комитет заседал в мае.", 4),
    ],
)
def test_words(text: str, words: int) -> None:
    assert count_words(text) == words


@pytest.mark.parametrize(
    "sentences",
    [
        ["See Cal. Const. art. I, § 7.", "The rule is old."],
        ["See Art. I, § 8, cl. 3, and amend. IV.", "They are clear."],
        ["See 45 Harv. L. Rev. 193.", "See Fed. Prac. & Proc. § 1357; 5 U.S.C. app. § 3."],
        ["See App. to Pet. for Cert. 12a; Rev. Rul. 2004-5.", "The judge said so.", "R. at 12."],
        ["Le président demanda : « Qui est contre ? »", "Personne.", "« Adopté. »", "Il sortit."],
        ["La Sra. Gil y la Dra. Paz votaron.", "Nadie más."],
        ["Der Preis ist 3 EUR zzgl. Steuer.", "Das gilt."],
        ["Пришли Лисин А. Б. и Котова.", "На ул. Портовой тихо."],
    ],
)
def test_abbreviations_of_other_places(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
