package hostfile

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxID is the largest accepted GPU id. No GPU driver has more than 64
	// devices on a host. A larger number after the host name is probably an
	// SSH port.
	maxID    = 63
	maxCount = 4096 // greatest number of CPU workers or slots of a host
)

// known lists, for error messages, the words that may follow a host's address
// on a line.
const known = "GPU ids such as 0,1, UUIDs such as GPU-02ba5a4d, or cpu, cpu*N, ps, slots=N, addr=IP, nic=NAME, exclude=IDS, or a variable in capitals"

// devicesOf parses the words between the host's address and its options. colon
// is true if a colon stands before the words. glued is true if the first word
// touches that colon.
func (h Host) devicesOf(words []string, colon, glued bool) (Devices, error) {
	if !colon {
		return Devices{}, hinted(fmt.Sprintf("such as %q", bracketed(h.Name)+": 0,1"),
			"%s after the host, expected a colon before its devices", quoted(words[0]))
	}
	word := words[0]
	if len(words) > 1 {
		if _, ok := number(words[1]); ok {
			return Devices{}, wrong("%s after %s, expected a comma between ids", quoted(words[1]), quoted(word))
		}
		return Devices{}, unknown(words[1])
	}
	if n, ok := number(word); ok && h.Port == 0 && looksLikePort(n, glued) {
		return Devices{}, portAsID(h.Name, n)
	}
	return parseDevices(word)
}

// looksLikePort reports whether n, the only number after the colon, is
// probably meant as a port and not as a GPU id. glued is true if the number
// touches the colon.
func looksLikePort(n int, glued bool) bool {
	return n > maxID && n <= maxPort || glued && n == defaultPort
}

func portAsID(name string, n int) error {
	name = bracketed(name)
	advice := fmt.Sprintf(`port %d is written "%s:%d:" or "%s:%d: 0,1"; ids are written "%s: 0,1"`,
		n, name, n, name, n, name)
	if n == defaultPort {
		advice = fmt.Sprintf(`port 22 is written "%s:22:" or "%s:22: 0,1"; GPU 22 is written "%s: 22"`,
			name, name, name)
	}
	return hinted(advice, "%d looks like a port where an id was meant, expected GPU ids after a single colon", n)
}

// parseDevices parses the word for a host's devices: GPU ids, cpu, cpu*N or
// ps.
func parseDevices(word string) (Devices, error) {
	switch word {
	case "ps":
		return Devices{Kind: ServerOnly}, nil
	case "cpu":
		return Devices{Kind: CPUs, Count: 1}, nil
	}
	if text, ok := strings.CutPrefix(word, "cpu*"); ok {
		n, err := parseCount("cpu*", text)
		return Devices{Kind: CPUs, Count: n}, err
	}
	if !strings.ContainsRune("0123456789+-,", rune(word[0])) && !startsUUID(word) {
		return Devices{}, unknown(word)
	}
	ids, err := parseIDs(word)
	return Devices{Kind: GPUs, IDs: ids}, err
}

func unknown(word string) error {
	return wrong("unknown word %s, expected %s", quoted(word), known)
}

// parseCount parses text as the number after word. word is "cpu*", "slots=" or
// "max_slots=".
func parseCount(word, text string) (int, error) {
	n, ok := number(text)
	if !ok || n < 1 || n > maxCount {
		return 0, wrong("bad count %s after %s, expected 1 to %d", quoted(text), word, maxCount)
	}
	return n, nil
}

// parseDataAddr parses an IP address that other hosts can dial and returns its
// canonical form.
func parseDataAddr(text string) (string, error) {
	inside := text
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		inside = text[1 : len(text)-1]
	}
	addr, err := netip.ParseAddr(inside)
	switch {
	case err != nil, inside != text && !addr.Is6():
		return "", wrong("%s is not an address, expected an IP address after addr=, such as addr=10.0.0.1", quoted(text))
	case addr.Zone() != "", addr.IsUnspecified(), addr.IsMulticast():
		return "", wrong("address %s cannot be dialled from other hosts, expected one of this host's after addr=", quoted(text))
	}
	return addr.Unmap().String(), nil
}

// options holds the options (NAME=VALUE words) at the end of a line of the
// resource file, which lists hosts and their devices.
type options struct {
	seen     map[string]bool // names of all options on the line
	slots    int             // number N of the option slots=N (use the GPUs 0 to N-1, or N workers on the CPU); 0 if the line has no slots=
	maxSlots int             // number in the option max_slots=, which files for mpirun have; 0 if the line has no max_slots=
	addr     string          // IP address in canonical form; empty if the line has no addr=
	exclude  []ID            // ids of the GPUs to leave out, sorted; empty if the line has no exclude=
	nic      string          // network interface over which tasks send data, such as eth0; empty if the line has no nic=
	values   []string        // values of the line's environment variables. Each NAME=VALUE on the line was replaced by NAME=N before: N is the index of VALUE here.
	env      []string        // the line's environment variables as NAME=VALUE, in the order of the line
}

// parseOptions parses the options and environment variables of a line. In
// words, each variable is NAME=N, where N is the index of the value in values.
// The parameter devices is true if the line names devices before the options.
func parseOptions(words, values []string, devices bool) (options, error) {
	given := options{seen: map[string]bool{}, values: values}
	for _, word := range words {
		if err := given.set(word); err != nil {
			return options{}, err
		}
	}
	return given, given.check(devices)
}

// apply returns the devices d, changed as the options slots= and exclude=
// demand.
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
		slices.SortFunc(o.exclude, compare)
	case "nic":
		o.nic, err = value, CheckInterface(value)
	default:
		err = o.setVariable(name, value)
	}
	return err
}

// setVariable adds an environment variable to o.env. number is an index of
// o.values, where the variable's value is; the parser has put it on the line
// in place of the value.
func (o *options) setVariable(name, number string) error {
	n, err := strconv.Atoi(number)
	if !variableStart().MatchString(name+"=") || err != nil || n >= len(o.values) {
		return unknown(name + "=") // the error does not contain the value, which may be a secret
	}
	o.env = append(o.env, name+"="+o.values[n])
	return nil
}

// check returns an error if options contradict each other or the line's
// devices. The parameter devices is true if the line names devices before the
// options.
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
	last := o.exclude[len(o.exclude)-1]
	if n, ok := last.Index(); !ok || n >= o.slots {
		return wrong("exclude=%s with slots=%d, expected ids from 0 to %d", last, o.slots, o.slots-1)
	}
	if len(o.exclude) == o.slots {
		return hinted(`a host without workers is written "host: ps"`,
			"exclude= leaves none of slots=%d, expected at least one", o.slots)
	}
	return nil
}
