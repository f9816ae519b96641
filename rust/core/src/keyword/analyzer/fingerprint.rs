//! What the terms of all texts depend on, pinned by one hash.

use std::collections::BTreeSet;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::folding::fold;
use super::{Analyzer, FINGERPRINT, LANGUAGES};

/// Words of languages that have no list of stop words, and of those that have one.
const WORDS: &str = "
    all human beings are born free and equal in dignity and rights they are endowed with reason and conscience
    alle menschen sind frei und gleich an würde und rechten geboren sie sind mit vernunft und gewissen begabt
    tous les êtres humains naissent libres et égaux en dignité et en droits ils sont doués de raison
    todos los seres humanos nacen libres e iguales en dignidad y derechos y dotados como están de razón
    tutti gli esseri umani nascono liberi ed eguali in dignità e diritti essi sono dotati di ragione
    všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv jsou nadáni rozumem a svědomím
    wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw są oni obdarzeni rozumem
    все люди рождаются свободными и равными в своём достоинстве и правах они наделены разумом и совестью
    всі люди народжуються вільними і рівними у своїй гідності та правах вони наділені розумом і совістю
    sva ljudska bića rađaju se slobodna i jednaka u dostojanstvu i pravima ona su obdarena razumom i svešću
    όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα είναι προικισμένοι με λογική
    bütün insanlar hür haysiyet ve haklar bakımından eşit doğarlar akıl ve vicdana sahiptirler
    kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan heille on annettu järki
    minden emberi lény szabadon születik és egyenlő méltósága és joga van az emberek ésszel bírván
    kõik inimesed sünnivad vabadena ja võrdsetena oma väärikuselt ja õigustelt neile on antud mõistus
    visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis jiems suteiktas protas ir sąžinė
    saoláitear na daoine uile saor agus comhionann ina ndínit agus ina gcearta tá bauidh an réasúin acu
    gizon emakume guztiak aske jaiotzen dira duintasun eta eskubide berberak dituztela ezaguera eta kontzientzia
    ĉiuj homoj estas denaske liberaj kaj egalaj laŭ digno kaj rajtoj ili posedas racion kaj konsciencon
    semua orang dilahirkan merdeka dan mempunyai martabat dan hak yang sama mereka dikaruniai akal
    batho bohle ba tswetswe ba lokolohile mme ba lekana ka seriti le ditokelo ba filwe monahano
    يولد جميع الناس أحرارا متساوين في الكرامة والحقوق وقد وهبوا عقلا وضميرا
    تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند
    सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है
    सबै व्यक्तिहरू जन्मजात स्वतन्त्र हुन् ती सबैको समान अधिकार र महत्व छ
    மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர் அவர்கள் மதிப்பிலும் உரிமைகளிலும் சமமானவர்கள்
    բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով
    יעדער מענטש ווערט געבוירן פֿרײַ און גלײַך אין כּבֿוד און רעכט
";

#[test]
fn terms_of_all_texts_are_those_of_this_version() {
    let plain = LANGUAGES.map(|language| Analyzer::new(language, false).ok());
    let mut words: BTreeSet<String> = WORDS.split_whitespace().map(str::to_owned).collect();
    for analyzer in plain.iter().flatten() {
        words.extend(analyzer.language.stop_words(str::to_owned));
    }
    assert!(words.len() > 2_000);
    let mut hash = Sha256::new();
    for analyzer in plain.iter().flatten().take(1) {
        for character in char::MIN..=char::MAX {
            let kind = analyzer.characters.kind(character);
            hash.update([kind as u8]);
            hash.update(fold(
                character.encode_utf8(&mut [0; 4]),
                analyzer.characters,
            ));
        }
    }
    for (language, plain) in LANGUAGES.iter().zip(plain) {
        hash.update([0]);
        hash.update(language);
        if let Some(analyzer) = plain {
            for word in &words {
                hash.update([1]);
                analyzer.text_terms(word, |term| hash.update(term));
            }
        }
        let filtered = Analyzer::new(language, true).ok();
        let left_out: BTreeSet<String> =
            filtered.into_iter().flat_map(|it| it.stop_words).collect();
        for word in left_out {
            hash.update([2]);
            hash.update(word);
        }
    }
    let mut found = String::new();
    for byte in hash.finalize() {
        let _ = write!(found, "{byte:02x}");
    }
    assert_eq!(
        found, FINGERPRINT,
        "other terms than those of indexes of this ANALYZER_VERSION"
    );
}
