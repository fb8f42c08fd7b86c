"""English numbers and short words that only their neighbors tell: a count behind a month, 4.5/5, I-80 W."""

import pytest

from voxline.text.alphabet import UnsupportedText
from voxline.text.frontend import apply_frontend, normalize_spoken
from voxline.text.settings import FrontendSettings

ROWS = """
In March 2,500 came, by May 20,000. = in march two thousand five hundred came by may twenty thousand
in May 2.5 million, in July 20 percent = in may two point five million in july twenty percent
In June 30 days remain, on June 30 we left. = in june thirty days remain on june thirtieth we left
Rocky III, Episode IV, Parts I, II and III = rocky three episode four parts one two and three
Mark V. Hurd, Mark X. Smith, the grades I and you got = mark v hurd mark x smith the grades i and you got
World Wars I and II, part I of it, an IV drip = world wars one and two part one of it an iv drip
chapters IV-VI, Type I or II, Queen Margrethe II = chapters four to six type one or two queen margrethe the second
In June 25 students left, in May 10 of them. = in june twenty five students left in may ten of them
On June 25 students left. In January 6 cases, = on june twenty fifth students left in january sixth cases
May 3, 1999, May 5,6, June 6,1944 = may third nineteen ninety nine may fifth six june sixth nineteen forty four
a 60/40 split, 80/20 in favor = a sixty forty split eighty twenty in favor
25/75 of it, 24/48 = twenty five seventy fifths of it twenty four forty eighths
4.5/5, 4/5 stars, give it a 7/10. = four point five out of five four out of five stars give it a seven out of ten
two $20s, $100s of it, four $5 bills = two twenties hundreds of it four five dollar bills
$20 billion, a $50 note = twenty billion dollars a fifty dollar note
a 27" TV, the 12" pipe is 5" wide = a twenty seven inch tv the twelve inches pipe is five inches wide
My Dr. called me Dr. too, on King Dr. = my doctor called me doctor too on king drive
He lives on Columbus Dr., ask your Dr. = he lives on columbus drive ask your doctor
Serial no. A17. I said no. A man left. = serial number a seventeen i said no a man left
post-WWII, in WW2 = post world war two in world war two
a 30 s clip, 5 s, the 90 s = a thirty second clip five seconds the ninety s
72 degrees F, 5 x 10^3 = seventy two degrees fahrenheit five times ten to the power of three
16 fl. oz., 10 Gb/s, 5 MB/s = sixteen fluid ounces ten gigabits per second five megabytes per second
Sec. 3, Pt. 2, 30 sec. 5 times = section three part two thirty seconds five times
est. 1887, an est. 300, the dept. of law = established eighteen eighty seven an est three hundred the department of law
Cpl. Lee, Adm. Nelson, Pvt. Ryan = corporal lee admiral nelson private ryan
10.30 at night, it is 10.30 = ten thirty at night it is ten point three zero
1.5:1, 3:2, 1:23.45 = one point five to one three to two one twenty three point four five
on Mon., Wed., & Fri., in the sun. = on monday wednesday and friday in the sun
I-80 W, 60 W bulbs, n° 5, 45 y/o = i eighty west sixty watts bulbs number five forty five years old
I-95S, I-5 N, a .300 hitter, batting .312 = i ninety five south i five north a three hundred hitter batting three twelve
a .45-caliber gun, .357 magnum, about .3 = a forty five caliber gun three fifty seven magnum about zero point three
great :D = great
on 22-Feb, Mon/Wed at 5 = on twenty second of february monday wednesday at five
open 9-5 M-F, 8 am - 5 pm M-F = open nine to five monday to friday eight a m to five p m monday to friday
the XIX century, M/W, vitamin C century = the nineteenth century m slash w vitamin c century
20/40 vision, 5x/week, O- blood = twenty forty vision five x per week o minus blood
It was 98F outside, 98 F = it was ninety eight degrees fahrenheit outside ninety eight degrees fahrenheit
20 C in the fridge, it's 75F = twenty degrees celsius in the fridge it's seventy five degrees fahrenheit
Bake it at 350F for 5 min = bake it at three hundred fifty degrees fahrenheit for five minutes
a fever of 102.5F, -40C = a fever of one hundred two point five degrees fahrenheit minus forty degrees celsius
68F (20C) = sixty eight degrees fahrenheit twenty degrees celsius
between 20 and 25C = between twenty and twenty five degrees celsius
heat it to 20-25C = heat it to twenty to twenty five degrees celsius
IT WAS 98F OUTSIDE = it was ninety eight degrees fahrenheit outside
98f outside, 20c each = ninety eight degrees fahrenheit outside twenty c each
turn 90 deg, 20 deg C = turn ninety degrees twenty degrees celsius
Gen Z and Gen. X, Gen. Grant, $1.2MM = gen z and gen x general grant one point two million dollars
a 24h clock, 2h later, it took 5h30 = a twenty four hour clock two hours later it took five hours thirty
6 ft. tall, 911 was called, 911 people = six feet tall nine one one was called nine hundred eleven people
the no. of it, nos. of them, no. One left = the number of it numbers of them no one left
Room 20C, gate 98F, vitamin B12, seat 12C = room twenty c gate ninety eight f vitamin b twelve seat twelve c
rows 12C, 13C and 14F were cold, an iPhone 5C = rows twelve c thirteen c and fourteen f were cold an iphone five c
221C Baker Street, 3 C students = two twenty one c baker street three c students
no. 12C, an F-150F = number twelve c an f one hundred fifty f
She started an IV, IV fluids, 5 mg IV, IV/IM = she started an iv iv fluids five milligrams iv iv slash im
we gave Henry IV fluids, Henry IV died, stage IV = we gave henry iv fluids henry the fourth died stage four
intravenous (IV) access, hang an IV bag, DRIP = intravenous iv access hang an iv bag drip
GIVE HER AN IV, A CD, THE MD AND THE CC = give her an iv a cd the md and the cc
size XL, his CV, an acute MI, XX chromosomes = size xl his cv an acute mi xx chromosomes
Washington DC, MC Hammer, 5 cc, CIVIC MIX, a DIV = washington dc mc hammer five cc civic mix a div
the MD of LI, MM, DI and LX, made in MMXX = the md of li mm di and lx made in twenty twenty
12 F-35s and 3 C-130s left = twelve f thirty fives and three c one thirties left
Bake at 180C/350F/Gas 4 = bake at one hundred eighty degrees celsius three hundred fifty degrees fahrenheit gas four
Keep out of the danger zone, 1,000F = keep out of the danger zone one thousand degrees fahrenheit
600 F Street, 1400 F St. NW = six hundred f street fourteen hundred f saint nw
Mix 2 C flour, 1 C water and 1/2 C sugar = mix two cups flour one cup water and a half cup sugar
Group IV, Apollo XV, Mk IV = group four apollo fifteen mk four
a train at 8h00 = a train at eight hours
from -40C to 85C, -20 C = from minus forty degrees celsius to eighty five degrees celsius minus twenty degrees celsius
deep fry at 180C = deep fry at one hundred eighty degrees celsius
feels like 95F = feels like ninety five degrees fahrenheit
Set the AC to 72F please = set the ac to seventy two degrees fahrenheit please
95C for 3 minutes, 20C today = ninety five degrees celsius for three minutes twenty degrees celsius today
It dropped to -10 C, a high of 95F = it dropped to minus ten degrees celsius a high of ninety five degrees fahrenheit
The 12C bus, flat 4C, Terminal 2F = the twelve c bus flat four c terminal two f
I wear a 34C and bought a 32C bra, the 3C phone = i wear a thirty four c and bought a thirty two c bra the three c phone
He received IV Tylenol, 2 g ceftriaxone IV q24h = he received iv tylenol two grams ceftriaxone iv q twenty four h
IV vancomycin, IV in place, page iv of it = iv vancomycin iv in place page four of it
No. Of course not! The no. of it = no of course not the number of it
A Porsche 911 was fast, 911 were killed = a porsche nine hundred eleven was fast nine hundred eleven were killed
About 911 calls were made, 911 call = about nine hundred eleven calls were made nine one one call
a 12h chart = a twelve hour chart
5 mg/dL, 10 µg, 2 mL, it's 1/4 in. = five milligrams per deciliter ten micrograms two milliliters it's one quarter inch
"""


@pytest.mark.parametrize("row", ROWS.strip().split("\n"))
def test_counts_behind_a_month_marks_out_of_ten_and_short_words(row: str) -> None:
    written, spoken = row.split(" = ")
    output = apply_frontend(written, FrontendSettings(kind="english_transcript")).symbols
    assert output == spoken
    assert normalize_spoken(spoken, "english_transcript") == spoken


@pytest.mark.parametrize(
    "text", ["Robert Downey III", "robert downey iii", "VI. Appendix", "the first XI", "APOLLO XIII LANDED"]
)
def test_a_roman_numeral_that_nothing_explains_is_refused(text: str) -> None:
    """It was passed on as letters, and "iii" is no word."""
    with pytest.raises(UnsupportedText, match="more than one reading"):
        apply_frontend(text, FrontendSettings(kind="english_transcript"))


@pytest.mark.parametrize(
    "text",
    [
        *("the 50C note", "12C", "The 5C gets hot", "He scored 98F.", "a 4C hair", "waiting outside 20C"),
        *(
            "The man in 14F was hot",
            "He's in 14C and she's in 14F",
            "It was cold, so she moved to 12C",
            "water in 4F",
            "The bus reached 4C",
            "She waited at 12C for 20 minutes",
        ),
        *("Rambo IV", "IV", "CD IV", "ROCKY BALBOA IV", "rambo iv", "XV", "the first XV", "XX", "WrestleMania XLVI"),
        *("LIII", "type XL", "level CC", "class XX", "number CL", "home page CI"),
    ],
)
def test_letters_that_may_be_degrees_or_numerals_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedText, match="more than one reading"):
        apply_frontend(text, FrontendSettings(kind="english_transcript"))
