package checkpoint

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNewID(t *testing.T) {
	for _, want := range []identity{{0, 0}, {40, 3}, {math.MaxUint64, math.MaxInt32}} {
		a, b := NewID(want.step, want.generation), NewID(want.step, want.generation)
		if got, err := parseID(a); err != nil || got != want || a == b {
			t.Errorf("%s, %s: %v, %v, want %v", a, b, got, err, want)
		}
	}
	if id := NewID(40, 2); !strings.HasPrefix(id, "000000000040-g2-") || len(id) != 24 {
		t.Error(id)
	}
}

func TestParseIDRefuses(t *testing.T) {
	for _, id := range []string{
		"", "40", "000000000040-g0-5f3a9c1", "000000000040-g0-5F3A9C1E", "00000000040-g0-5f3a9c1e",
		"0000000000040-g0-5f3a9c1e", "000000000040-g00-5f3a9c1e", "000000000040-g-5f3a9c1e", "000000000040-g-1-5f3a9c1e",
		"000000000040-g2147483648-5f3a9c1e", "99999999999999999999-g0-5f3a9c1e", "../000000000040-g0-5f3a9c1e",
		"000000000040-g0-5f3a9c1e/..", "000000000040-g0-5f3a9c1e\n", ".000000000040-g0-5f3a9c1e",
	} {
		if _, err := parseID(id); err == nil {
			t.Errorf("%q: accepted", id)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("000000000040-g0-5f3a9c1e")
	f.Add("18446744073709551615-g2147483647-ffffffff")
	f.Fuzz(func(t *testing.T, id string) {
		if n, err := parseID(id); err == nil && formatID(n.step, n.generation, id[len(id)-8:]) != id {
			t.Errorf("%q is read as %v", id, n)
		}
	})
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"ps-1.safetensors", "worker-0.state.safetensors", "a", "_", strings.Repeat("x", longestName)} {
		if err := checkName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", ".a", "-a", "a/b", "a\\b", "a b", "a\n", "a:b", "ä", "a\x00", manifestName, strings.Repeat("x", longestName+1)} {
		if err := checkName(name); err == nil {
			t.Errorf("%q: accepted", name)
		}
	}
}

func TestNewestFirst(t *testing.T) {
	at := func(id string, second int) FolderCopy {
		return FolderCopy{ID: id, Manifest: &Manifest{Time: time.Unix(int64(second), 0)}}
	}
	want := []FolderCopy{
		at("1000000000000-g0-00000000", 0), // a step of 13 digits is larger, although it sorts before 12 digits as text
		at("000000000050-g0-00000000", 0),
		at("000000000040-g0-00000000", 3), // of a later job
		at("000000000040-g9-00000001", 2),
		at("000000000040-g10-00000000", 1),
		at("000000000040-g9-00000002", 1),
		{ID: "000000000040-g9-00000004"},
		{ID: "000000000040-g9-00000003"},
		at("000000000039-g99-00000000", 9),
	}
	for range 50 {
		got := slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, newestFirst)
		for i := range got {
			if got[i].ID != want[i].ID {
				t.Fatalf("%d: got %s, want %s", i, got[i].ID, want[i].ID)
			}
		}
	}
}
