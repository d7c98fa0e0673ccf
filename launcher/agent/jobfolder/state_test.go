//go:build linux

package jobfolder

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

func TestStatesOfOtherMachines(t *testing.T) {
	own, _ := process.Read(os.Getpid())
	here := protocol.State{Phase: protocol.Running, Processes: protocol.Processes{Machine: Machine(), Supervisor: own.PID, SupervisorStart: own.Start}}
	name, rest, _ := strings.Cut(Machine(), " ")
	for what, test := range map[string]struct {
		edit func(*protocol.State)
		want Life
	}{
		"here":           {func(*protocol.State) {}, Living},
		"pid used again": {func(s *protocol.State) { s.SupervisorStart += 2 }, Dead},
		"a time that another time namespace has rounded": {func(s *protocol.State) { s.SupervisorStart++ }, Living},
		"shared home":  {func(s *protocol.State) { s.Machine = "other " + rest }, Unknown},
		"over, shared": {func(s *protocol.State) { s.Machine = "other " + rest; s.Phase = protocol.Over }, Dead},
		"restarted":    {func(s *protocol.State) { s.Machine = name + " 1234 pid:[1]" }, Dead},
		"a container that restarted": {func(s *protocol.State) {
			s.Machine, s.Alive = name+" "+boot(Machine())+" pid:[1]", time.Now().Add(-aliveLimit-time.Second)
		}, Dead},
		"another process table": {func(s *protocol.State) {
			s.Machine, s.Alive = name+" "+boot(Machine())+" pid:[1]", time.Now().Add(-aliveLimit/2)
		}, Unknown},
		"silent elsewhere": {func(s *protocol.State) {
			s.Machine, s.Alive = "other "+rest, time.Now().Add(-aliveLimit*2)
		}, Unknown},
		"silent here": {func(s *protocol.State) { s.Alive = time.Now().Add(-aliveLimit * 2) }, Living},
	} {
		s := here
		test.edit(&s)
		if got := LifeOf(s); got != test.want {
			t.Errorf("%s: %v, want %v", what, got, test.want)
		}
	}
}
