package jobs

import (
	"reflect"
	"strings"
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestContrast(t *testing.T) {
	have := []protocol.HostPlan{{Host: "a", Folder: "a"}, {Host: "b", Folder: "b_2222"}, {Host: "c", Folder: "c", Left: true}}
	for _, x := range []struct {
		want  []hostfile.Host
		fresh []string
		leave []int
	}{
		{[]hostfile.Host{{Name: "a"}, {Name: "b", Port: 2222}}, nil, nil},
		{[]hostfile.Host{{Name: "a"}, {Name: "b"}}, []string{"b"}, []int{1}},
		{[]hostfile.Host{{Name: "a", User: "u"}, {Name: "b", Port: 2222}, {Name: "c"}}, []string{"c"}, nil}, // it has left, and comes again
		{[]hostfile.Host{{Name: "d"}}, []string{"d"}, []int{0, 1}},
	} {
		fresh, leave := contrast(x.want, have)
		var names []string
		for _, h := range fresh {
			names = append(names, h.Name)
		}
		if !reflect.DeepEqual(names, x.fresh) || !reflect.DeepEqual(leave, x.leave) {
			t.Errorf("%v: new %v, leaving %v; want %v, %v", x.want, names, leave, x.fresh, x.leave)
		}
	}
}

// What the driver would refuse is refused before anything is copied.
func TestCanLeave(t *testing.T) {
	have := []protocol.HostPlan{{Host: "a"}, {Host: "b", Drives: true}, {Host: "c", Left: true}}
	for _, x := range []struct {
		leave []int
		want  string // "": they can leave
	}{
		{nil, ""},
		{[]int{0}, ""},
		{[]int{1}, "host b drives the job and cannot leave it"},
	} {
		err := canLeave(have, x.leave)
		if (err == nil) != (x.want == "") || err != nil && (err.Error() != x.want || exit.Hint(err) == "") {
			t.Errorf("%v: %v, want %q", x.leave, err, x.want)
		}
	}
	have[1].Drives = false
	if err := canLeave(have, []int{0, 1}); err == nil || err.Error() != "no host would stay, and the checkpoint is on the old hosts, a, b" || exit.Hint(err) == "" {
		t.Error(err)
	}
}

func TestOptionsOf(t *testing.T) {
	task := func(role cluster.Role, devices string) protocol.TaskSpec {
		return protocol.TaskSpec{Task: cluster.Task{Role: role}, Devices: devices}
	}
	for _, x := range []struct {
		tasks []protocol.TaskSpec
		want  placement.Options
	}{
		{[]protocol.TaskSpec{task(cluster.Worker, "0"), task(cluster.Worker, "1")}, placement.Options{NoServers: true}},
		{[]protocol.TaskSpec{task(cluster.PS, ""), task(cluster.Worker, "0")}, placement.Options{}},
		{[]protocol.TaskSpec{task(cluster.Worker, "0,1"), task(cluster.Worker, "0,1")}, placement.Options{NoServers: true, VisibleHost: true}},
		{[]protocol.TaskSpec{task(cluster.Worker, ""), task(cluster.Worker, "")}, placement.Options{NoServers: true}},
	} {
		if got := optionsOf([]protocol.HostPlan{{Tasks: x.tasks}}); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%+v: %+v, want %+v", x.tasks, got, x.want)
		}
	}
}

// Whoever interrupts plx scale is told whether the job may change its hosts all
// the same.
func TestWhatAnInterruptedScaleLeaves(t *testing.T) {
	for asked, want := range map[bool]string{false: "it is not scaled", true: "or with the old ones: plx jobs"} {
		if got := (&scaler{asked: asked}).interrupted(); !strings.Contains(got, want) {
			t.Errorf("asked %v: %q, want %q", asked, got, want)
		}
	}
}
