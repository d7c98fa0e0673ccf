package main

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/testhosts"
)

// killedAnew kills the victim as soon as it runs again: while the next generation
// starts, or is restored.
func killedAnew(ctx context.Context, r *run) (string, error) {
	first := r.stopped[0].OuterPID
	err := until(ctx, "the victim runs again", func() (bool, error) {
		ps, err := r.cell.processes(r.host())
		return err == nil && ps[0].OuterPID != first, nil // with an error there is none yet
	})
	if err != nil {
		return "", err
	}
	return r.signal(ctx, syscall.SIGKILL, 'X', "gone as soon as it ran")
}

// killedAgain kills the victim once more when the next generation has made a
// step.
func killedAgain(ctx context.Context, r *run) (string, error) {
	next := func(text string) bool {
		generation, _, ok := stepOf(text)
		return ok && generation > 0
	}
	if !r.script.await(ctx, r.job.ended, next) {
		return "", errors.New("no other generation made a step")
	}
	return r.signal(ctx, syscall.SIGKILL, 'X', "gone behind a step of generation 1")
}

// lastHostCut cuts the last host off when plx has decided to begin anew.
func lastHostCut(ctx context.Context, r *run) (string, error) {
	decided := func(text string) bool {
		return own(text) && strings.Contains(text, "generation 0 is ended, to restart")
	}
	if !r.script.await(ctx, r.job.ended, decided) {
		return "", errors.New("plx did not decide to begin anew")
	}
	return linkDown(ctx, r.lastHost())
}

func lastHostHealed(_ context.Context, r *run) error {
	r.lastHost().Heal()
	return nil
}

func (r *run) lastHost() *testhosts.Host { return r.cluster.Hosts[len(r.cluster.Hosts)-1] }
