package launcher

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/plx-run/plx/launcher/conductor"
	"github.com/plx-run/plx/launcher/protocol"
)

// run starts the agents and stays until the verdict, or until a detached job
// runs.
func (l *launch) run(ctx context.Context) (int, error) {
	if l.cfg.Detach {
		return l.detach(ctx)
	}
	out, err := l.openOutput()
	if err != nil {
		return CodePlx, err
	}
	defer l.voice.through(nil)
	stops := l.signals.conduct()
	if cause := context.Cause(ctx); cause != nil {
		return Code(cause), errors.Join(cause, out.Close(), l.record().forget())
	}
	verdict, err := conductor.Run(context.WithoutCancel(ctx), l.plan(), l.hosts(ctx, out), conductor.Options{
		Lease: l.cfg.Lease, Stop: stops, OnNote: func(text string) { l.voice.say("%s", text) }, OnLay: l.lay, Join: l.join(ctx, out),
	})
	err = errors.Join(err, l.logs.wait(l.unended(err), stops, l.forgive), out.Close())
	l.finish(verdict)
	l.voice.through(nil)
	l.report(verdict)
	if l.cfg.Fetch != "" {
		l.signals.end()
		err = errors.Join(err, l.fetch(ctx, stops))
	}
	if err != nil {
		l.voice.say("%s", strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
	}
	if err != nil && verdict.Code == 0 {
		return Code(err), nil
	}
	return verdict.Code, nil
}

// unended are the stations that were given up: those that the conductor's error
// names, and those that were lost before.
func (l *launch) unended(err error) map[*station]bool {
	lost := map[*station]bool{}
	for i := range l.lost {
		if l.lost[i].Load() {
			lost[l.stations[i]] = true
		}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			var u *conductor.UnendedError
			if errors.As(one, &u) {
				lost[l.stations[u.Index]] = true
			}
		}
	}
	return lost
}

// hosts tells the conductor how to reach each agent: by starting it the first
// time, later by connecting to it. A host's logs are streamed once its agent
// is up.
func (l *launch) hosts(ctx context.Context, out *output) []conductor.Host {
	var hosts []conductor.Host
	for i, s := range l.stations {
		tasks := l.tasks(i)
		var once sync.Once
		h := l.host(ctx, out, i, s, tasks)
		h.Dial = func(ctx context.Context) (conn *protocol.Conn, err error) {
			first := false
			once.Do(func() {
				first = true
				conn, err = l.start(ctx, i, s, tasks)
			})
			if first {
				return conn, err
			}
			return s.connect(ctx)
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// host is how a host is reached whose agent runs.
func (l *launch) host(ctx context.Context, out *output, i int, s *station, tasks []protocol.TaskSpec) conductor.Host {
	lost := l.lost[i]
	return conductor.Host{Name: s.host.Name, Dial: s.connect, Swept: true,
		Revive: func(ctx context.Context) (*protocol.Conn, error) { return l.revive(ctx, i, s, tasks) },
		Lost:   func() { lost.Store(true) },
		Up: func() {
			lost.Store(false)
			l.logs.follow(context.WithoutCancel(ctx), s, out, l.cfg.Lease)
		}}
}

// start starts the agent of a host, up to fanOut at once.
func (l *launch) start(ctx context.Context, i int, s *station, tasks []protocol.TaskSpec) (*protocol.Conn, error) {
	select {
	case l.starting <- struct{}{}:
		defer func() { <-l.starting }()
	case <-ctx.Done():
		return nil, &noStart{context.Cause(ctx)}
	}
	spec, err := l.spec(i, s, tasks)
	if err != nil {
		return nil, &noStart{err}
	}
	return s.start(ctx, spec)
}

// report tells the verdict on stderr: who failed first, where, how, with the
// last lines of its stderr.
func (l *launch) report(v protocol.Verdict) {
	tell(l.voice, l.job, v, saves(l.cfg.Args))
}

func tell(voice *voice, job string, v protocol.Verdict, saves bool) {
	if v.Code == 0 {
		voice.say("job %s: %s", job, v.Reason)
		return
	}
	if v.First != nil && v.First.Tail != "" {
		voice.say("last lines of %s on %s:", v.First.Task, v.Host)
		for line := range strings.Lines(v.First.Tail) {
			voice.say("  %s", harmless(line))
		}
	}
	if len(v.Victims) > 0 {
		voice.say("failed because of it: %s", strings.Join(v.Victims, ", "))
	}
	voice.say("job %s: %s", job, v.Reason)
	if saves && v.Stepped {
		voice.say("hint: %s", goOn(job))
	}
}

// harmless makes text from a task fit for a terminal.
func harmless(line string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, line)
}
