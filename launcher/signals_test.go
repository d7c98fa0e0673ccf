package launcher

import (
	"bytes"
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobstate"
)

func TestSignals(t *testing.T) {
	give := stopLimits{grace: 10 * time.Second, save: time.Minute}
	for name, c := range map[string]struct {
		give stopLimits
		sent []os.Signal
		want []jobstate.StopAsked
		says string
	}{
		"Ctrl-C saves nothing": {give, []os.Signal{os.Interrupt},
			[]jobstate.StopAsked{{Reason: "stopped by Ctrl-C", Code: 130, Grace: 10 * time.Second}}, "10s to end"},
		"SIGTERM saves": {give, []os.Signal{syscall.SIGTERM},
			[]jobstate.StopAsked{{Reason: "stopped by signal terminated", Code: 143, Grace: 10 * time.Second, SaveTime: time.Minute}}, "saved first, for at most 1m0s"},
		"a second one ends at once": {give, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, []jobstate.StopAsked{
			{Reason: "stopped by signal terminated", Code: 143, Grace: 10 * time.Second, SaveTime: time.Minute},
			{Reason: "stopped by signal terminated", Code: 143}}, "a second signal kills"},
		"SIGHUP saves nothing": {give, []os.Signal{syscall.SIGHUP},
			[]jobstate.StopAsked{{Reason: "stopped by signal hangup", Code: 129, Grace: 10 * time.Second}}, "10s to end"},
		"no time to save": {stopLimits{grace: time.Second}, []os.Signal{syscall.SIGTERM},
			[]jobstate.StopAsked{{Reason: "stopped by signal terminated", Code: 143, Grace: time.Second}}, "1s to end"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			sent := make(chan os.Signal)
			ctx, s := watch(context.Background(), sent, c.give, console.NewPrinter(console.Terminal{Stderr: &said}))
			stops := s.listen()
			for i, sig := range c.sent {
				sent <- sig
				if got := <-stops; got != c.want[i] {
					t.Errorf("got %+v, want %+v", got, c.want[i])
				}
			}
			s.close()
			if !strings.Contains(said.String(), c.says) {
				t.Errorf("said %q, want %q", said.String(), c.says)
			}
			if context.Cause(ctx) != context.Canceled {
				t.Errorf("the context ended with %v, want the end of watch", context.Cause(ctx))
			}
		})
	}
}

// The message announces a checkpoint only if the job keeps checkpoints, but
// every job is asked for one.
func TestSignalAnnouncesCheckpoint(t *testing.T) {
	for promise, want := range map[saving]string{
		sureSaving:  "the job is saved first, for at most 1m0s, then the tasks have 1s to end; a second",
		maybeSaving: "the job is saved first, for at most 1m0s, if it keeps checkpoints, then the tasks have 1s to end; a second",
		noSaving:    "terminated: the tasks have 1s to end; a second",
	} {
		var said bytes.Buffer
		sent := make(chan os.Signal)
		_, s := watch(context.Background(), sent, stopLimits{grace: time.Second, save: time.Minute}, console.NewPrinter(console.Terminal{Stderr: &said}))
		s.expect(promise)
		stops := s.listen()
		sent <- syscall.SIGTERM
		if got := <-stops; got.SaveTime != time.Minute {
			t.Errorf("%+v, want a checkpoint", got)
		}
		s.close()
		if !strings.Contains(said.String(), want) {
			t.Errorf("said %q, want %q", said.String(), want)
		}
	}
	for want, l := range map[saving]launch{
		sureSaving:  {program: entrypoint.Program{Trainer: true}, cfg: Config{Args: []string{"--ckpt-dir=saved"}}},
		maybeSaving: {program: entrypoint.Program{Trainer: true}},
		noSaving:    {cfg: Config{Args: []string{"train.py", "--ckpt-dir=saved"}}},
	} {
		if got := l.saving(); got != want {
			t.Errorf("%v: %v, want %v", l.cfg.Args, got, want)
		}
	}
}

func TestSignalBeforeJobStartCancelsLaunch(t *testing.T) {
	sent := make(chan os.Signal)
	ctx, s := watch(context.Background(), sent, stopLimits{save: time.Minute}, console.NewPrinter(console.Terminal{Stderr: &bytes.Buffer{}}))
	defer s.close()
	sent <- syscall.SIGTERM
	<-ctx.Done()
	if code := exit.Code(context.Cause(ctx)); code != 143 {
		t.Errorf("exit status %d: %v", code, context.Cause(ctx))
	}
}

// After the end of the job, while files are fetched, a signal asks for no
// checkpoint and prints nothing.
func TestSignalAfterJobEndPrintsNothing(t *testing.T) {
	var said bytes.Buffer
	sent := make(chan os.Signal)
	_, s := watch(context.Background(), sent, stopLimits{grace: time.Second, save: time.Minute}, console.NewPrinter(console.Terminal{Stderr: &said}))
	stops := s.listen()
	s.end()
	sent <- syscall.SIGTERM
	if got := <-stops; got.Code != 143 || got.SaveTime != 0 {
		t.Errorf("got %+v", got)
	}
	s.close()
	if said.Len() > 0 {
		t.Errorf("said %q", said.String())
	}
}
