//go:build linux

package program

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestEnvironmentOrder(t *testing.T) {
	login := []string{"PATH=/bin", "A=login", "SSH_CLIENT=x", "PLX_X=x", "A=again", "_=/usr/bin/env", "MASTER_ADDR=login"}
	spec := protocol.Spec{Folder: "f", Env: []protocol.Raw{"A=user", "RANK=user", "PATH=/user", "PLX_BLAS=gonum", "PLX_RANK=9"}, Command: protocol.Command{Path: "/first"}}
	c := cluster.Contract{Job: "j", Task: cluster.Task{Role: cluster.PS}}
	env := Environment(login, spec, c, "/work")
	for name, want := range map[string]string{"A": "user", "PATH": "/first:/user", "PWD": "/work",
		"PLX_BLAS": "gonum", "PLX_JOB": "j", "PLX_HOST_FOLDER": "f"} {
		if got, _ := Lookup(env, name); got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"SSH_CLIENT", "PLX_X", "_", "PLX_RANK", "RANK", "MASTER_ADDR"} {
		if _, ok := Lookup(env, name); ok {
			t.Errorf("%s has come through", name)
		}
	}
	if env := Environment(nil, protocol.Spec{}, c, "/"); !slices.Contains(env, "PATH="+defaultPath) {
		t.Error("no PATH where the login gives none")
	}
}

// Defaults never override a variable that the user or the login has set, even
// to an empty value. The variables that plx defines for tasks do not depend on
// these.
func TestUserAndLoginOverrideDefaults(t *testing.T) {
	c := cluster.Contract{Job: "j", Task: cluster.Chief, WorldSize: 1, Foreign: cluster.Foreign{Interface: "eth0", Threads: 4}}
	login := []string{"PYTHONUNBUFFERED=login"}
	spec := protocol.Spec{Env: []protocol.Raw{"NCCL_SOCKET_IFNAME=ib0,ib1", "OMP_NUM_THREADS=", "PLX_LOG_LEVEL=debug"}}
	env := Environment(login, spec, c, "/work")
	for name, want := range map[string]string{"PYTHONUNBUFFERED": "login", "NCCL_SOCKET_IFNAME": "ib0,ib1", "OMP_NUM_THREADS": "",
		"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0", "WORLD_SIZE": "1", "PLX_LOG_LEVEL": "debug"} {
		if got, set := Lookup(env, name); got != want || !set {
			t.Errorf("%s=%q (set: %v), want %q", name, got, set, want)
		}
	}
	// The interface that the user has chosen overrides the login's variables,
	// and the user's variables override the interface.
	env = Environment([]string{"GLOO_SOCKET_IFNAME=login", "TP_SOCKET_IFNAME=login"},
		protocol.Spec{Interface: "eth0", Env: []protocol.Raw{"TP_SOCKET_IFNAME=user"}}, c, "/work")
	for name, want := range map[string]string{"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "user"} {
		if got, _ := Lookup(env, name); got != want {
			t.Errorf("%s=%q with a chosen interface, want %q", name, got, want)
		}
	}
	env = Environment(nil, protocol.Spec{}, c, "/work")
	for name, want := range map[string]string{"PYTHONUNBUFFERED": "1", "NCCL_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "4"} {
		if got, _ := Lookup(env, name); got != want {
			t.Errorf("%s=%q without the user's, want %q", name, got, want)
		}
	}
}
