//go:build linux

package program

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestEnvironmentOrder(t *testing.T) {
	login := []string{"PATH=/bin", "A=login", "SSH_CLIENT=x", "PLX_X=x", "A=again", "_=/usr/bin/env"}
	spec := protocol.Spec{Folder: "f", Env: []protocol.Raw{"A=user", "RANK=user", "PATH=/user", "PLX_BLAS=gonum", "PLX_RANK=9"}, Command: protocol.Command{Path: "/first"}}
	c := cluster.Contract{Job: "j", Task: cluster.Task{Role: cluster.PS}}
	env := Environment(login, spec, c, "/work")
	for name, want := range map[string]string{"A": "user", "PATH": "/first:/user", "RANK": "user", "PWD": "/work",
		"PLX_BLAS": "gonum", "PLX_JOB": "j", "PLX_HOST_FOLDER": "f"} {
		if got, _ := Lookup(env, name); got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"SSH_CLIENT", "PLX_X", "_", "PLX_RANK"} {
		if _, ok := Lookup(env, name); ok {
			t.Errorf("%s has come through", name)
		}
	}
	if env := Environment(nil, protocol.Spec{}, c, "/"); !slices.Contains(env, "PATH="+defaultPath) {
		t.Error("no PATH where the login gives none")
	}
}
