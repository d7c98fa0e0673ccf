//go:build linux

package process

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	tail := " 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 %s 0 99 12345 7"
	for name, test := range map[string]struct {
		text string
		want Process
		bad  bool
	}{
		"plain":           {"7 (sh) S" + fmt.Sprintf(tail, "1"), Process{7, 1, 3, 99, false, "sh", 26}, false},
		"name with )":     {"7 (a) Z 5 (b)) S" + fmt.Sprintf(tail, "1"), Process{7, 1, 3, 99, false, "a) Z 5 (b)", 26}, false},
		"zombie":          {"7 (sh) Z" + fmt.Sprintf(tail, "1"), Process{7, 1, 3, 99, true, "sh", 26}, false},
		"thread lives on": {"7 (sh) Z" + fmt.Sprintf(tail, "3"), Process{7, 1, 3, 99, false, "sh", 26}, false},
		"short":           {"7 (sh) S 1 2", Process{}, true},
		"empty":           {"", Process{}, true},
		"no number":       {"7 (sh) S x 2 3 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 99 1", Process{}, true},
	} {
		if got, err := parseStat(7, []byte(test.text)); got != test.want || (err != nil) != test.bad {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	own, err := Read(os.Getpid())
	if err != nil || own.Parent != os.Getppid() || own.Start == 0 || own.Zombie {
		t.Errorf("this process: %+v, %v", own, err)
	}
}

// The start time of this process is the same when it is read in another time
// namespace.
func TestStartTimeIsSameInTimeNamespace(t *testing.T) {
	own, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if of := os.Getenv("PLX_TEST_START_OF"); of != "" {
		pid, _ := strconv.Atoi(of)
		seen, err := Read(pid)
		fmt.Println("seen", seen.Start, err, Alive(pid, seen.Start), bootOffset())
		return
	}
	cmd := exec.Command("unshare", "--time", "--boottime", "123456", "--fork", os.Args[0], "-test.run", "^TestStartTimeIsSameInTimeNamespace$")
	cmd.Env = append(os.Environ(), fmt.Sprint("PLX_TEST_START_OF=", os.Getpid()))
	text, err := cmd.CombinedOutput()
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("no time namespace: %v\n%s", err, text)
	}
	if want := fmt.Sprintf("seen %d <nil> true %d", own.Start, 123456*TicksPerSecond); !strings.Contains(string(text), want) {
		t.Errorf("%v, %s, want %s", err, text, want)
	}
}

func TestParseOffset(t *testing.T) {
	for text, want := range map[string]int64{
		"monotonic           0         0\nboottime            0         0\n": 0,
		"monotonic 5 0\nboottime 7 250000000\n":                              725,
		"1 5 0\n7 -7 0\n":                                                    -700,
		"boottime x 0\n":                                                     0,
		"":                                                                   0,
	} {
		if got := parseOffset(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (sh) S 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 12345"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := parseStat(1, text); err != nil && p != (Process{}) {
			t.Errorf("%+v with %v", p, err)
		}
	})
}

func TestTrees(t *testing.T) {
	list := []Process{{PID: 1}, {PID: 10, Parent: 1}, {PID: 11, Parent: 10}, {PID: 12, Parent: 11},
		{PID: 20, Parent: 1}, {PID: 21, Parent: 20}, {PID: 30, Parent: 31}, {PID: 31, Parent: 30}}
	got := pids(trees(list, 10, func(p Process) bool { return p.Parent == 10 }))
	if slices.Sort(got); !slices.Equal(got, []int{11, 12}) {
		t.Errorf("below 10: %v", got)
	}
	got = pids(trees(list, 11, func(p Process) bool { return p.PID == 20 || p.PID == 30 }))
	if slices.Sort(got); !slices.Equal(got, []int{20, 21, 30, 31}) {
		t.Errorf("roots 20 and 30: %v", got)
	}
}

func pids(list []Process) []int {
	var out []int
	for _, p := range list {
		out = append(out, p.PID)
	}
	return out
}
