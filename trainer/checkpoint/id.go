package checkpoint

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
)

// NewID names a checkpoint of the state after step steps. Every call returns
// another name.
func NewID(step uint64, generation int) string {
	var salt [4]byte
	rand.Read(salt[:]) // never fails
	return formatID(step, generation, hex.EncodeToString(salt[:]))
}

func formatID(step uint64, generation int, salt string) string {
	return fmt.Sprintf("%012d-g%d-%s", step, generation, salt)
}

// identity is what a checkpoint's name says.
type identity struct {
	step       uint64
	generation int
}

var idPattern = regexp.MustCompile(`^([0-9]{12,20})-g([0-9]{1,10})-([0-9a-f]{8})$`)

func parseID(id string) (identity, error) {
	wrong := fmt.Errorf("checkpoint %q: a checkpoint's name is like 000000000040-g0-5f3a9c1e", id)
	parts := idPattern.FindStringSubmatch(id)
	if parts == nil {
		return identity{}, wrong
	}
	step, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return identity{}, wrong
	}
	generation, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil || formatID(step, int(generation), parts[3]) != id {
		return identity{}, wrong
	}
	return identity{step: step, generation: int(generation)}, nil
}

// newestFirst orders checkpoints by step, then time, then generation. Time comes
// before generation because another job has generations of its own, and because
// workers that are not in step may have made more steps than the chief. If all
// three are equal, or manifests are missing, the name decides.
func newestFirst(a, b Held) int {
	x, _ := parseID(a.ID) // List and Candidates take no other names
	y, _ := parseID(b.ID)
	return -cmp.Or(cmp.Compare(x.step, y.step), a.time().Compare(b.time()),
		cmp.Compare(x.generation, y.generation), cmp.Compare(a.ID, b.ID))
}

const (
	manifestName = "manifest.json"
	longestName  = 128 // bytes; a temporary name is longer
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// checkName refuses a name that is not plain on every system: names come from
// other hosts and become parts of paths.
func checkName(name string) error {
	switch {
	case len(name) > longestName || !namePattern.MatchString(name):
		return fmt.Errorf("file %q: want a plain name of at most %d letters, digits, dots, dashes", name, longestName)
	case name == manifestName:
		return fmt.Errorf("file %q: the manifest has that name", name)
	}
	return nil
}
