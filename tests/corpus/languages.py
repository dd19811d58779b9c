"""Paragraphs in other languages, written for these tests."""

GERMAN = (
    "Die Zahnradbahn fährt seit dem Frühjahr wieder bis zum Gipfel, obwohl die Brücke noch nicht "
    "gestrichen ist. Wer früh aufsteht, sieht vom obersten Bahnsteig aus bis zum Meer. Die "
    "Schaffner bitten darum, Hunde an der Leine zu führen.",
    "Im vergangenen Winter lag der Schnee so hoch, dass die Mannschaft jeden Morgen zwei Stunden "
    "schaufeln musste. Erst im April wurde die untere Weiche wieder frei. Seitdem prüft man die "
    "Bremsen vor jeder Talfahrt doppelt.",
    "Das kleine Museum im Lokschuppen zeigt drei alte Wagen und eine Sammlung von Fahrkarten. Der "
    "Eintritt ist frei, doch über Spenden freut sich der Verein. Größere Gruppen melden sich "
    "bitte eine Woche vorher an.",
    "Ein neuer Motor für die blaue Lokomotive kostet mehr, als der Verein in zehn Jahren "
    "einnimmt. Deshalb wird nun mit der Gemeinde über einen Kredit verhandelt. Ob er kommt, "
    "entscheidet der Rat im Herbst.",
)
FRENCH = (
    "Le bac traverse la rivière depuis plus d'un siècle, et personne n'a encore voulu d'un pont. "
    "Les enfants du village le prennent chaque matin pour aller à l'école. En été, il reste "
    "ouvert jusqu'à minuit.",
    "La chaîne a été remplacée au mois de mars, après une longue période de basses eaux. Les "
    "ouvriers ont trouvé dans la vase une ancre très ancienne. Elle est exposée aujourd'hui "
    "devant la mairie.",
    "Le passeur connaît tous ses clients par leur prénom et leur garde parfois le courrier. Il "
    "prendra sa retraite l'année prochaine, sans successeur pour l'instant. La commune espère "
    "encore trouver quelqu'un.",
)
SPANISH = (
    "El barquero empieza su jornada antes de que salga el sol y apenas descansa al mediodía. "
    "Conoce cada piedra del río y sabe cuándo va a subir el agua. Por eso los vecinos confían en "
    "él más que en los avisos.",
    "Durante la sequía del año pasado la barca quedó varada tres semanas en la orilla oriental. "
    "Hubo que cavar un canal a mano para devolverla a la corriente. Desde entonces se mide el "
    "nivel todos los días.",
    "La oficina de caminos quiere pintar las barandillas de amarillo antes del invierno. Nadie se "
    "opone al color, pero muchos preguntan quién va a pagarlo. La respuesta llegará con el "
    "presupuesto de enero.",
)
GREEK = (
    "Η βιβλιοθήκη του χωριού άνοιξε ξανά μετά από δύο χρόνια. Τα παιδιά έρχονται κάθε απόγευμα "
    "και διαβάζουν δίπλα στο παράθυρο.",
    "Ο βιβλιοδέτης επισκεύασε εκατό παλιά βιβλία μέσα σε έναν χειμώνα. Κανείς δεν περίμενε ότι θα "
    "τελείωνε τόσο γρήγορα.",
    "Οι χάρτες φυλάσσονται τώρα στο υπόγειο, όπου δεν φτάνει ο ήλιος. Μόνο ο φύλακας έχει το "
    "κλειδί.",
    "Το καλοκαίρι η αίθουσα μένει κλειστή για δέκα μέρες. Τότε καθαρίζονται τα ράφια και "
    "μετριούνται όλοι οι τόμοι.",
)
RUSSIAN = (
    "Городская библиотека получила в подарок девять тысяч книг. Две недели их разбирали всем "
    "отделом.",
    "Читальный зал открыт теперь и по воскресеньям. Больше всего этому рады студенты и пенсионеры.",
    "Старый каталог решили сохранить, хотя им почти никто не пользуется. В нём есть записи, "
    "которых нет больше нигде.",
    "Весной протекла крыша, и часть газет пришлось сушить на чердаке. К счастью, ни один том не "
    "пропал.",
)
ITALIAN = (
    "La mensa della scuola prepara ogni giorno quattrocento pasti caldi. Il pane arriva dal forno "
    "vicino e le mele dalla valle. I bambini più piccoli mangiano per primi.",
    "A gennaio si è rotto il forno grande, e per tre settimane si è mangiata solo minestra. I "
    "genitori hanno protestato con garbo. Alla fine il comune ha comprato un forno nuovo.",
    "Il cuoco pesa gli avanzi ogni venerdì e scrive il risultato su un quaderno. In due anni lo "
    "spreco si è dimezzato. Adesso anche altre scuole vogliono imitarlo.",
    "Chi desidera un pasto senza carne deve dirlo entro lunedì. La regola è semplice, ma qualcuno "
    "la dimentica sempre. Per fortuna in cucina c'è sempre un po' di formaggio.",
)
