package coordinator

import (
	"math"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestLossInWords(t *testing.T) {
	for want, l := range map[string]loss{
		"no step is made again":                                                                                 {exact: true},
		"1 step is made again":                                                                                  {chief: 1, exact: true},
		"5 steps are made again":                                                                                {chief: 5, exact: true, shared: true},
		"at least 5 steps are made again":                                                                       {chief: 5},
		"steps made since are made again, it is not known how many":                                             {several: true, again: true},
		"5 steps of the chief and 9 of other workers are made again":                                            {chief: 5, others: 9, several: true, again: true, exact: true},
		"0 steps of the chief and 1 of other workers are made again":                                            {others: 1, several: true, again: true, exact: true},
		"at least 1 step of the chief and 0 of other workers are made again":                                    {chief: 1, several: true, again: true},
		"5 steps of the chief's group and 9 of other groups are made again":                                     {chief: 5, others: 9, several: true, shared: true, again: true, exact: true},
		"1 step of the chief is made again, and 1 of other workers is lost":                                     {chief: 1, others: 1, several: true, exact: true},
		"at least 0 steps of the chief are made again, and 2 of other workers are lost":                         {others: 2, several: true},
		"5 steps of the chief are made again; there are too many other workers to count theirs":                 {chief: 5, several: true, uncounted: true, again: true, exact: true},
		"at least 0 steps of the chief's group are made again; there are too many other groups to count theirs": {several: true, shared: true, uncounted: true},
	} {
		if got := l.String(); got != want {
			t.Errorf("%+v: %q, want %q", l, got, want)
		}
	}
}

// hears is a machine in a generation that has heard words of the one before.
func hears(words ...protocol.Said) *Machine {
	m := New(protocol.Plan{})
	for _, s := range words {
		m.progressed(s)
	}
	m.take()
	m.lay(1)
	return m
}

func said(role cluster.Role, index int, w cluster.ControlMessage) protocol.Said {
	w.Kind = cluster.Heartbeat
	return protocol.Said{Task: cluster.Task{Role: role, Index: index}, Message: w}
}

// What a confused task says harms nobody but its own count.
func TestWordsOutOfBounds(t *testing.T) {
	long := make([]int64, cluster.MaxGroups+1)
	const huge = math.MaxInt64
	for name, c := range map[string]struct {
		words []protocol.Said
		cut   []int64
		want  string
	}{
		"a group that there is not": {[]protocol.Said{
			said(cluster.Worker, 0, cluster.ControlMessage{Step: 9, Groups: 2, Last: true}),
			said(cluster.Worker, 1, cluster.ControlMessage{Step: 9, Group: 2, Groups: 2, Last: true}),
			said(cluster.Worker, 1, cluster.ControlMessage{Step: 9, Group: -1, Groups: 2, Last: true}),
		}, []int64{4, 4}, "at least 5 steps of the chief and 0 of other workers are made again"},
		"more groups than can be counted": {[]protocol.Said{
			said(cluster.Worker, 0, cluster.ControlMessage{Step: 9, Groups: huge, Last: true}),
			said(cluster.Worker, 7, cluster.ControlMessage{Step: 9, Group: 7, Groups: huge}),
			said(cluster.Worker, 9, cluster.ControlMessage{Step: 9, Group: huge - 1, Groups: huge}),
		}, nil, "5 steps of the chief are made again; there are too many other workers to count theirs"},
		"a list that is too long": {[]protocol.Said{
			said(cluster.Worker, 0, cluster.ControlMessage{Step: 9, Groups: 1, Last: true}),
			said(cluster.PS, 0, cluster.ControlMessage{Made: long, Last: true}),
		}, nil, "5 steps of the chief are made again; there are too many other workers to count theirs"},
		"steps below none": {[]protocol.Said{
			said(cluster.Worker, 0, cluster.ControlMessage{Step: -9, From: -20, Groups: 1, Last: true}),
		}, nil, "steps made since are made again, it is not known how many"},
	} {
		t.Run(name, func(t *testing.T) {
			m := hears(c.words...)
			m.hostOf = map[cluster.Task]int{cluster.Chief: 0}
			m.progressed(said(cluster.Worker, 0, cluster.ControlMessage{Step: 5, From: 4, Groups: 2, Cut: c.cut}))
			want := "generation 1 goes on behind step 4: " + c.want
			if out := m.take(); len(out) != 1 || out[0] != (Note{want}) {
				t.Errorf("%+v, want %q", out, want)
			}
		})
	}
}
