package hostfile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const (
	// maxID is the largest GPU id. No driver has more than 64 devices on a
	// host, so a larger number must be a port.
	maxID    = 63
	maxCount = 4096 // CPU workers or slots of a host
)

// known lists what may follow an address.
const known = "GPU ids such as 0,1, or cpu, cpu*N, ps, slots=N, addr=IP, exclude=IDS"

// A deviceField is the part of a line between address and options.
type deviceField struct {
	words []string
	colon bool // a colon stands before it
	glued bool // the first word touches that colon
}

// devicesOf reads the device field of the host's line.
func (h Host) devicesOf(f deviceField) (Devices, error) {
	if !f.colon {
		return Devices{}, hinted(fmt.Sprintf("such as %q", bracketed(h.Name)+": 0,1"),
			"%s after the host, expected a colon before its devices", quoted(f.words[0]))
	}
	if len(f.words) > 1 {
		return Devices{}, tooMany(f.words)
	}
	word := f.words[0]
	if n, ok := number(word); ok && h.Port == 0 && looksLikePort(n, f.glued) {
		return Devices{}, portAsID(h.Name, n)
	}
	return parseDevices(word)
}

// tooMany returns the error for a second word where only options may follow.
func tooMany(found []string) error {
	if _, ok := number(found[1]); ok {
		return wrong("%s after %s, expected a comma between ids", quoted(found[1]), quoted(found[0]))
	}
	return unknown(found[1])
}

// looksLikePort reports whether a single number, where ids stand, was more
// likely meant as a port.
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

// parseDevices reads ids, cpu or ps.
func parseDevices(word string) (Devices, error) {
	if word == "ps" {
		return Devices{Kind: ServerOnly}, nil
	}
	if word == "cpu" {
		return Devices{Kind: CPUs, Count: 1}, nil
	}
	if text, ok := strings.CutPrefix(word, "cpu*"); ok {
		n, err := parseCount("cpu*", text)
		return Devices{Kind: CPUs, Count: n}, err
	}
	if !strings.ContainsRune("0123456789+-,", rune(word[0])) {
		return Devices{}, unknown(word)
	}
	ids, err := parseIDs(word)
	return Devices{Kind: GPUs, IDs: ids}, err
}

func unknown(word string) error {
	return wrong("unknown word %s, expected %s", quoted(word), known)
}

// parseIDs reads ids with commas between them and no space.
func parseIDs(text string) ([]int, error) {
	const expected = "expected GPU ids from 0 to 63 with commas between them, such as 0,1,2"
	var ids []int
	for word := range strings.SplitSeq(text, ",") {
		id, ok := number(word)
		switch {
		case word == "":
			return nil, wrong("id missing beside a comma in %s, %s", quoted(text), expected)
		case !ok && word[0] == '-':
			return nil, wrong("negative id %s, %s", quoted(word), expected)
		case !ok:
			return nil, wrong("bad id %s, %s", quoted(word), expected)
		case id > maxID:
			return nil, hinted(`a port stands before a second colon: "host:2222: 0,1"`,
				"id %s is too large, %s", quoted(word), expected)
		case slices.Contains(ids, id):
			return nil, wrong("id %d is named twice, %s", id, expected)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// parseCount reads the number after cpu* or slots=.
func parseCount(word, text string) (int, error) {
	n, ok := number(text)
	if !ok || n < 1 || n > maxCount {
		return 0, wrong("bad count %s after %s, expected 1 to %d", quoted(text), word, maxCount)
	}
	return n, nil
}

// parseDataAddr reads an address that other hosts can dial and returns it in
// its canonical form.
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
