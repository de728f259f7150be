"""When a schedule fires: `Cron`, `Every` and `RRule`, pure values. Floor 4; reads no clock, talks to nobody.

    expression, fields, cron_words             Cron: search, parsing with refusals, words
    every                                      Every
    rrule, rrule_parts, rrule_words            RRule: expansion, parsing, words
    rule                                       what the three share
    zones, tzif                                wall time <-> UTC from one tzdata, with the rules for gaps and folds
    words                                      English shared by the describers

`docs/cron.md` says what each of them means.
"""

from redisched.cron.every import Every
from redisched.cron.expression import Cron, schedule_from_dict
from redisched.cron.rrule import RRule
from redisched.cron.rule import Rule

__all__ = ["Cron", "Every", "RRule", "Rule", "schedule_from_dict"]
