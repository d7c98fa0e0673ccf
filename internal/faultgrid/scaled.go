package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// scaling is a plx scale that meets a fault.
type scaling struct {
	job    *job
	script *transcript
	log    io.Closer
}

// whileScaled has the job scaled to all hosts and strikes meanwhile: as soon as
// there is an agent on the host that joins or, late, when the checkpoint is made
// and the generation ends.
func whileScaled(second strike, late bool) strike {
	return func(ctx context.Context, r *run) (string, error) {
		log, err := r.openLog(r.cell.Name() + "-scale")
		if err != nil {
			return "", err
		}
		s := &scaling{script: newTranscript(log), log: log}
		if s.job, err = r.start(s.script, "scale", "--color", "never", "--hosts", r.looseFile, r.name); err != nil {
			return "", errors.Join(err, log.Close())
		}
		r.scaling = s
		if late {
			saved := func(text string) bool { return own(text) && strings.Contains(text, "scaling: saved behind step") }
			if !r.script.await(ctx, r.job.ended, saved) {
				return "", errors.New("no checkpoint was made to go on with other hosts")
			}
		} else if err := r.joined(ctx); err != nil {
			return "", err
		}
		r.struck = time.Now()
		return second(ctx, r)
	}
}

// joined waits for an agent on the host that joins.
func (r *run) joined(ctx context.Context) error {
	return until(ctx, "an agent on the host that joins", func() (bool, error) {
		ps, err := r.lastHost().Processes()
		for _, p := range ps {
			if strings.Contains(strings.Join(p.Args, " "), "plx agent supervisor") {
				return true, err
			}
		}
		return false, err
	})
}

// judge waits for whoever scaled the job, which must have been told the truth
// with the right exit status. It is called when the job has ended.
func (s *scaling) judge(ctx context.Context) error {
	if s == nil {
		return nil
	}
	code, err := s.job.wait(ctx)
	if err = errors.Join(err, s.log.Close()); err != nil {
		return fmt.Errorf("plx scale: %w", err)
	}
	lines, _ := s.script.so()
	for word, want := range map[string]int{"scaled from ": 0, "not scaled": 125} {
		if _, found := saying(lines, time.Time{}, []string{word}, own); found && code == want {
			return nil
		}
	}
	return fmt.Errorf("plx scale: exit status %d: %s", code, last(lines))
}
