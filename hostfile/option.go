package hostfile

import (
	"slices"
	"strings"
)

// options is what the words name=value at the end of a line say.
type options struct {
	seen     map[string]bool
	slots    int
	maxSlots int
	addr     string
	exclude  []int
}

// readOptions reads the options of a line into h. devices says that devices
// stand before them.
func (h *Host) readOptions(words []string, devices bool) error {
	given := options{seen: map[string]bool{}}
	for _, word := range words {
		if err := given.set(word); err != nil {
			return err
		}
	}
	if err := given.check(devices); err != nil {
		return err
	}
	if given.seen["slots"] {
		h.Devices.Kind, h.Devices.Count = Slots, given.slots
	}
	h.Devices.Excluded, h.DataAddr = given.exclude, given.addr
	return nil
}

func (o *options) set(word string) error {
	name, value, ok := strings.Cut(word, "=")
	if !ok {
		return hinted("devices come right after the colon, options after them",
			"%s after an option, expected NAME=VALUE", quoted(word))
	}
	if name == "max-slots" {
		name = "max_slots"
	}
	if o.seen[name] {
		return wrong("%s= is given twice", name)
	}
	o.seen[name] = true
	var err error
	switch name {
	case "slots":
		o.slots, err = parseCount("slots=", value)
	case "max_slots":
		o.maxSlots, err = parseCount("max_slots=", value)
	case "addr":
		o.addr, err = parseDataAddr(value)
	case "exclude":
		o.exclude, err = parseIDs(value)
		slices.Sort(o.exclude)
	default:
		err = unknown(word)
	}
	return err
}

// check refuses options that contradict one another or the devices.
func (o *options) check(devices bool) error {
	switch {
	case o.seen["slots"] && devices:
		return wrong("slots= after devices, expected one or the other")
	case o.seen["exclude"] && devices:
		return hinted("leave the ids out of the list instead",
			"exclude= after devices, expected it with slots= or with a host alone")
	case o.seen["max_slots"] && !o.seen["slots"]:
		return wrong("max_slots= without slots=, expected both or slots= alone")
	case o.seen["max_slots"] && o.maxSlots < o.slots:
		return wrong("max_slots=%d is less than slots=%d, expected at least as many", o.maxSlots, o.slots)
	case o.seen["slots"] && o.seen["exclude"]:
		return o.checkExcludedSlots()
	}
	return nil
}

func (o *options) checkExcludedSlots() error {
	if last := o.exclude[len(o.exclude)-1]; last >= o.slots {
		return wrong("exclude=%d with slots=%d, expected ids from 0 to %d", last, o.slots, o.slots-1)
	}
	if len(o.exclude) == o.slots {
		return hinted(`a host without workers is written "host: ps"`,
			"exclude= leaves none of slots=%d, expected at least one", o.slots)
	}
	return nil
}
