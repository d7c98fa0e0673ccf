package hostfile

import (
	"slices"
	"strings"
)

// options holds the words name=value at the end of a line.
type options struct {
	seen     map[string]bool // names given
	slots    int             // 0 without slots=
	maxSlots int             // 0 without max_slots=
	addr     string          // canonical IP address, "" without addr=
	exclude  []int           // GPU ids, ascending
}

// parseOptions reads the options of a line. devices reports whether devices
// stand before them.
func parseOptions(words []string, devices bool) (options, error) {
	given := options{seen: map[string]bool{}}
	for _, word := range words {
		if err := given.set(word); err != nil {
			return options{}, err
		}
	}
	return given, given.check(devices)
}

// apply returns d as the options change it.
func (o *options) apply(d Devices) Devices {
	if o.seen["slots"] {
		d.Kind, d.Count = Slots, o.slots
	}
	d.Excluded = o.exclude
	return d
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
