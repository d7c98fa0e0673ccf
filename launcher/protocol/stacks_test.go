package protocol

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

func TestStacksHeads(t *testing.T) {
	at := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
	want := []StacksHead{
		{Task: cluster.Task{Role: cluster.Worker, Index: 3}, Time: at, Places: []string{"all_reduce (train.py:41)", "main (a b.py:2)"}},
		{Task: cluster.Task{Role: cluster.PS}, Time: at.Add(time.Second)},
	}
	text := "worker:1, no time\n  at nowhere\n" + want[0].String() + "process 7 (python3), child of 1\n  at no place\n\n" + want[1].String() + "  at the end\n"
	if got := StacksHeads(text); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v of\n%s", got, text)
	}
}

// FuzzStacksHeads reads any text: what it finds is found again when it is written.
func FuzzStacksHeads(f *testing.F) {
	f.Add("worker:1, 2026-11-30T18:00:00Z\n  at all_reduce (train.py:41)\n\nps:0, 2026-11-30T18:00:00+01:00\n")
	f.Fuzz(func(t *testing.T, text string) {
		heads := StacksHeads(text)
		var again strings.Builder
		for _, h := range heads {
			again.WriteString(h.String())
		}
		found := StacksHeads(again.String())
		if len(found) != len(heads) {
			t.Fatalf("%d heads, then %d", len(heads), len(found))
		}
		for i, h := range heads {
			if found[i].Task != h.Task || !found[i].Time.Equal(h.Time) || strings.Join(found[i].Places, "\n") != strings.Join(h.Places, "\n") {
				t.Fatalf("%+v, then %+v", h, found[i])
			}
		}
	})
}
