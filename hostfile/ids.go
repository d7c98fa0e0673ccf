package hostfile

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ID names a GPU in one of two ways: by its index, such as "3", or by its UUID or the
// start of one, such as "GPU-02ba5a4d". A UUID can also be that of a MIG device, such as
// "MIG-feb88891". Hexadecimal digits are in lower case.
type ID string

// Index returns the index that the ID is. ok is false for a UUID.
func (id ID) Index() (n int, ok bool) { return number(string(id)) }

// finds reports whether id names the GPU that the line calls other.
func (id ID) finds(other ID) bool {
	_, index := id.Index()
	return id == other || !index && strings.HasPrefix(string(other), string(id))
}

// kind is "GPU-", "MIG-" or "" for an index.
func (id ID) kind() string {
	if _, index := id.Index(); index {
		return ""
	}
	return string(id[:4])
}

// compare orders indices by their number, and UUIDs after them.
func compare(a, b ID) int {
	m, first := a.Index()
	n, second := b.Index()
	switch {
	case first && second:
		return cmp.Compare(m, n)
	case first:
		return -1
	case second:
		return 1
	}
	return strings.Compare(string(a), string(b))
}

const expectedIDs = "expected GPU ids from 0 to 63 or UUIDs with commas between them, such as 0,1,2 or GPU-02ba5a4d,GPU-d6de6afc"

// startsUUID reports whether a word is meant as a UUID.
func startsUUID(word string) bool {
	return len(word) >= 4 && (strings.EqualFold(word[:4], "GPU-") || strings.EqualFold(word[:4], "MIG-"))
}

// The parts of a UUID after the first four letters. Before driver 470 that of a MIG device
// has the GPU's UUID, and the numbers of the GPU instance and the compute instance.
var (
	uuidShape = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	})
	amdShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{1,16}$`) }) // GPUs of AMD have 16 digits
	oldShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^gpu-([0-9a-f-]+)(/[0-9]{1,3}/[0-9]{1,3})?$`) })
)

// parseUUID reads a UUID or the start of one.
func parseUUID(word string) (ID, error) {
	kind, rest := strings.ToUpper(word[:4]), strings.ToLower(word[4:])
	start, kept := rest, rest
	if old := oldShape().FindStringSubmatch(rest); kind == "MIG-" && old != nil {
		start, kept = old[1], "GPU-"+strings.TrimPrefix(rest, "gpu-")
		if old[2] != "" && !uuidShape().MatchString(start) {
			return "", badUUID(word)
		}
	}
	const whole = "00000000-0000-0000-0000-000000000000"
	switch {
	case kind == "GPU-" && amdShape().MatchString(start):
	case start == "" || len(start) > len(whole) || !uuidShape().MatchString(start+whole[len(start):]):
		return "", badUUID(word)
	}
	return ID(kind + kept), nil
}

func badUUID(word string) error {
	return hinted("plx probe prints the UUIDs of a host",
		"bad UUID %s, expected one such as GPU-02ba5a4d-8cb4-f0a5-2a8f-1f4f3c0a1b2d, GPU-9c1d2e3f4a5b6c7d or MIG-feb88891, whole or its start", quoted(word))
}

// parseIDs reads ids and ranges of indices with commas between them and no space.
func parseIDs(text string) ([]ID, error) {
	var ids []ID
	for word := range strings.SplitSeq(text, ",") {
		more, err := parseIDRange(word, text)
		if err != nil {
			return nil, err
		}
		for _, id := range more {
			if slices.Contains(ids, id) {
				return nil, wrong("id %s is named twice, %s", id, expectedIDs)
			}
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// parseIDRange reads a word of text: an id, or a range such as 0-3.
func parseIDRange(word, text string) ([]ID, error) {
	first, last, _ := strings.Cut(word, "-")
	from, ok1 := number(first)
	to, ok2 := number(last)
	if !ok1 || !ok2 {
		id, err := parseID(word, text)
		return []ID{id}, err
	}
	if from > to {
		return nil, wrong("bad range %s, expected the lower id first, such as 0-3", quoted(word))
	}
	if _, err := parseID(last, text); err != nil {
		return nil, err // it bounds the range
	}
	var ids []ID
	for n := from; n <= to; n++ {
		ids = append(ids, ID(strconv.Itoa(n)))
	}
	return ids, nil
}

// parseID reads a word of text.
func parseID(word, text string) (ID, error) {
	n, ok := number(word)
	switch {
	case word == "":
		return "", wrong("id missing beside a comma in %s, %s", quoted(text), expectedIDs)
	case startsUUID(word):
		return parseUUID(word)
	case !ok && word[0] == '-':
		return "", wrong("negative id %s, %s", quoted(word), expectedIDs)
	case !ok:
		return "", wrong("bad id %s, %s", quoted(word), expectedIDs)
	case n > maxID:
		return "", hinted(`a port stands before a second colon: "host:2222: 0,1"`,
			"id %s is too large, %s", quoted(word), expectedIDs)
	}
	return ID(strconv.Itoa(n)), nil
}

func joinIDs(ids []ID) string {
	var words []string
	for _, id := range ids {
		words = append(words, string(id))
	}
	return strings.Join(words, ",")
}
