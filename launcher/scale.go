package launcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

// ScaleConfig says on which hosts a running job is to go on.
type ScaleConfig struct {
	Query                  // Reach are the hosts
	SaveTime time.Duration // bounds the save before
}

// startTime bounds the start of the tasks on the new hosts, as seen from here:
// the conductor has a bound of its own, --start-timeout.
const startTime = 15 * time.Minute

// Scale has a running job go on with other hosts, behind its next step. When it
// fails the job goes on as before.
func Scale(ctx context.Context, cfg ScaleConfig) error {
	j, err := cfg.open(ctx, true)
	if err != nil {
		return err
	}
	defer j.fleet.Close() // what was to be said has been answered
	switch {
	case j.Embedded:
		return Mistake(fmt.Errorf("job %s: it runs on an embedded cluster, which has no other hosts", j.Job), "launch it with --hosts")
	case j.ended(ctx):
		return fmt.Errorf("job %s: it has ended%s", j.Job, j.ending())
	}
	bounded, cancel := context.WithTimeout(ctx, 2*cfg.SaveTime+startTime)
	defer cancel()
	s := &scaler{job: j, cfg: cfg}
	defer s.close()
	answer, err := s.scale(bounded)
	if err != nil && ctx.Err() != nil {
		j.voice.say("job %s: %s", j.Job, s.interrupted())
	}
	if err != nil {
		return fmt.Errorf("job %s: not scaled: %w", j.Job, err)
	}
	if answer.To == 0 {
		j.voice.say("job %s: these are its hosts already, and they keep the devices that they have", j.Job)
		return nil
	}
	err = j.moved(answer)
	j.voice.say("job %s: %s", j.Job, answer) // behind it: whoever reads may have gone
	return err
}

// scaler is one run of Scale.
type scaler struct {
	*job
	cfg     ScaleConfig
	fleet   *fleet // the new hosts
	scratch string
	spec    protocol.Spec
	fresh   []*station // the new hosts' agents
	conns   []*protocol.Conn
	join    []protocol.Joining
	asked   bool // the conductor, and has not answered
}

// interrupted says what becomes of a job when the user leaves.
func (s *scaler) interrupted() string {
	if s.asked {
		return "interrupted: it goes on with the other hosts, or with those that it has: plx jobs"
	}
	return "interrupted: it is not scaled and goes on with the hosts that it has"
}

func (s *scaler) scale(ctx context.Context) (answer protocol.Scaled, err error) {
	layout, err := s.ask(ctx, protocol.Scale{ID: rand.Text()})
	if err != nil {
		return answer, err
	}
	fresh, leave := contrast(s.cfg.Reach.Hosts, layout.Hosts)
	if len(fresh)+len(leave) == 0 {
		return answer, nil
	}
	if err := s.prepare(ctx, fresh, layout.Hosts); err != nil {
		return answer, errors.Join(err, s.endFresh(err))
	}
	answer, err = s.ask(ctx, protocol.Scale{ID: rand.Text(), Known: len(layout.Hosts), Join: s.join, Leave: leave, SaveTime: s.cfg.SaveTime})
	s.asked = answer.Cause == ""
	if !s.asked {
		err = errors.Join(err, s.endFresh(err))
	} else if err != nil { // the conductor may have them by now, else their leases end them
		err = fmt.Errorf("no answer: %w; it may still be: plx jobs", err)
	}
	return answer, err
}

// contrast finds out which of the wanted hosts are new, and which hosts of the
// job are not wanted.
func contrast(want []hostfile.Host, have []protocol.HostPlan) (fresh []hostfile.Host, leave []int) {
	stay := map[string]bool{}
	for _, h := range want {
		folder := (&remote{host: h}).folder()
		stay[folder] = true
		if !slices.ContainsFunc(have, func(p protocol.HostPlan) bool { return !p.Left && p.Folder == folder }) {
			fresh = append(fresh, h)
		}
	}
	for i, p := range have {
		if !p.Left && !stay[p.Folder] {
			leave = append(leave, i)
		}
	}
	return fresh, leave
}

// teller is the station whose agent is asked.
func (s *scaler) teller() *station { return s.stations[s.Chief] }

// ask sends a wish through an agent of the job, and waits for the conductor's
// answer; a connection that is lost is made again.
func (s *scaler) ask(ctx context.Context, scale protocol.Scale) (answer protocol.Scaled, err error) {
	for try := 1; ; try++ {
		answer, err = s.askOnce(ctx, scale)
		if err == nil && answer.Cause != "" {
			err = errors.New(answer.Cause)
			return answer, err
		}
		if err == nil || ctx.Err() != nil || try == stopTries {
			return answer, s.teller().blame(ctx, err)
		}
	}
}

// blame names the host, and the time that is over.
func (s *station) blame(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return s.named(err)
}

func (s *scaler) askOnce(ctx context.Context, scale protocol.Scale) (answer protocol.Scaled, err error) {
	conn, err := s.teller().visit(ctx)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for _, m := range []protocol.Message{{SpecAsk: true}, {Scale: &scale}} {
		if err := conn.Send(m); err != nil {
			return answer, err
		}
	}
	for {
		m, err := conn.Receive()
		switch {
		case err != nil:
			return answer, err
		case m.Spec != nil:
			s.spec = *m.Spec
		case m.Scaled != nil && m.Scaled.ID == scale.ID:
			return *m.Scaled, nil
		case m.State != nil && m.State.Verdict != nil:
			return answer, fmt.Errorf("the job has ended: %s", m.State.Verdict.Reason)
		}
	}
}
