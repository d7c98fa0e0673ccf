package hostfile

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ID identifies a GPU on its host: by its index, such as "3", or by its UUID
// or the beginning of the UUID, such as "GPU-02ba5a4d". It can also be the
// UUID of a MIG device, such as "MIG-feb88891". Hexadecimal digits are in
// lower case.
type ID string

// Index returns the ID as a number if the ID is an index. If the ID is a UUID,
// ok is false.
func (id ID) Index() (n int, ok bool) { return number(string(id)) }

// identifies reports whether id and other mean the same GPU: they are equal,
// or id is the beginning of the UUID other. other is the ID in the host's line
// of the resource file.
func (id ID) identifies(other ID) bool {
	_, index := id.Index()
	return id == other || !index && strings.HasPrefix(string(other), string(id))
}

// kind returns "GPU-" or "MIG-" for a UUID, or "" for an index.
func (id ID) kind() string {
	if _, index := id.Index(); index {
		return ""
	}
	return string(id[:4])
}

// compare sorts indices by number, and sorts UUIDs after all indices.
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

// startsUUID reports whether a word begins with GPU- or MIG-, in any case.
func startsUUID(word string) bool {
	return len(word) >= 4 && (strings.EqualFold(word[:4], "GPU-") || strings.EqualFold(word[:4], "MIG-"))
}

// Patterns for the part of a UUID after GPU- or MIG-. Up to driver 470, the
// UUID of a MIG device consists of its GPU's UUID and the numbers of the GPU
// instance and the compute instance.
var (
	uuidShape = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	})
	amdShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{1,16}$`) }) // UUIDs of AMD's GPUs have at most 16 hexadecimal digits
	oldShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^gpu-([0-9a-f-]+)(/[0-9]{1,3}/[0-9]{1,3})?$`) })
)

// parseUUID parses a UUID or the beginning of a UUID, and returns it with
// lower-case digits.
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

// parseIDs parses a comma-separated list of GPU ids and index ranges, such as
// 0-3,5. The list contains no spaces.
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

// parseIDRange parses word, one item of the list text: an id, or a range such
// as 0-3. Error messages quote text.
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
		return nil, err // the last id of the range is greater than maxID
	}
	var ids []ID
	for n := from; n <= to; n++ {
		ids = append(ids, ID(strconv.Itoa(n)))
	}
	return ids, nil
}

// parseID parses word, one item of the list text, as an index or a UUID. Error
// messages quote text.
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
