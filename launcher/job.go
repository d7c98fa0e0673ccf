package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/protocol"
)

// askTime bounds one question to a host about a job.
const askTime = 40 * time.Second

// Query names a job and the way to its hosts.
type Query struct {
	Job string // id, or a unique beginning of one; "": the newest, or the newest running one
	// Reach says where to look for jobs that this machine has no record of.
	// With OnHosts only those found there count.
	Reach    Reach
	OnHosts  bool
	Terminal Terminal
}

// job is a job that was launched before, with connections to its hosts.
type job struct {
	record
	voice    *voice
	fleet    *fleet
	stations []*station
}

// open finds the job and makes its stations. Of these it reaches at most that of
// the host that conducts it, to learn which they are. With running, only a job
// that has no verdict yet will do when none was named.
func (q Query) open(ctx context.Context, running bool) (*job, error) {
	v := newVoice(q.Terminal)
	r, err := q.find(ctx, running, v)
	if err != nil {
		return nil, err
	}
	j, err := r.open(ctx, v, q.Reach.AcceptNewHostKeys)
	if err != nil {
		return nil, err
	}
	return j.refreshed(ctx, q.Reach.AcceptNewHostKeys)
}

func (r record) open(ctx context.Context, v *voice, accept bool) (*job, error) {
	reach, err := r.reach(accept)
	if err != nil {
		return nil, err
	}
	f, err := openFleet(ctx, reach, v)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	j := &job{record: r, voice: v, fleet: f}
	for i, h := range r.Hosts {
		j.stations = append(j.stations, &station{remote: f.remotes[i], job: r.Job, folder: h.Folder, binary: h.Binary})
	}
	return j, nil
}

// find looks the job up among this machine's records, or on the given hosts.
func (q Query) find(ctx context.Context, running bool, v *voice) (record, error) {
	if !q.OnHosts {
		rs, err := loadRecords()
		if err != nil {
			return record{}, err
		}
		r, err := q.pick(ctx, rs, running, v)
		if err == nil || len(q.Reach.Hosts) == 0 {
			return r, err
		}
	}
	rs, err := searchHosts(ctx, q.Reach, v)
	if err != nil {
		return record{}, err
	}
	return q.pick(ctx, rs, running, v)
}

// pick chooses among jobs, the oldest first.
func (q Query) pick(ctx context.Context, rs []record, running bool, v *voice) (record, error) {
	if q.Job != "" {
		return q.named(ctx, rs, running, v)
	}
	for _, r := range slices.Backward(rs) {
		if !running || (r.Verdict == nil && stillRuns(ctx, &r, v)) {
			return r, nil
		}
	}
	what := "job"
	if running {
		what = "running job"
	}
	return record{}, Mistake(fmt.Errorf("there is no %s that this machine knows of", what),
		"name the hosts with --hosts to look there; plx jobs lists what is known")
}

// named finds the job that was named. Where a running one is wanted, one of
// that name which runs comes before newer ones that have ended.
func (q Query) named(ctx context.Context, rs []record, running bool, v *voice) (record, error) {
	r, err := match(rs, q.Job)
	if err != nil || !running || r.Name != q.Job {
		return r, err
	}
	for _, other := range slices.Backward(rs) {
		if other.Name == q.Job && other.Verdict == nil && stillRuns(ctx, &other, v) {
			return other, nil
		}
	}
	return r, nil
}

// match finds the job whose id is the given text; else the newest of that
// name; else the one job whose id begins so. Records are the oldest first.
func match(rs []record, text string) (record, error) {
	var named, begun []record
	for _, r := range rs {
		switch {
		case r.Job == text:
			return r, nil
		case r.Name == text:
			named = append(named, r)
		case strings.HasPrefix(r.Job, text):
			begun = append(begun, r)
		}
	}
	switch {
	case len(named) > 0:
		return named[len(named)-1], nil
	case len(begun) == 1:
		return begun[0], nil
	case len(begun) > 1:
		return record{}, Mistake(fmt.Errorf("job %s: %d jobs begin so", text, len(begun)), "the newest is "+begun[len(begun)-1].Job)
	}
	return record{}, Mistake(fmt.Errorf("job %s: this machine knows of none", text),
		"plx jobs lists what is known; name the hosts with --hosts to look there")
}

// stillRuns asks the chief's host, and notes what it tells.
func stillRuns(ctx context.Context, r *record, v *voice) bool {
	state, err := r.ask(ctx, v)
	if errors.Is(err, errForgotten) {
		return false
	}
	if err != nil {
		v.say("job %s: %v", r.Job, err)
		return true // not known to be over
	}
	if err := r.learn(state, v); err != nil {
		v.say("%v", err)
	}
	return state.Verdict == nil
}

// ended reports whether the job has. Its stations stay as they are.
func (j *job) ended(ctx context.Context) bool {
	r := j.record
	return r.Verdict != nil || !stillRuns(ctx, &r, j.voice)
}

// ask learns the state of the job from the chief's host.
func (r record) ask(ctx context.Context, v *voice) (protocol.State, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	j, err := r.open(ctx, v, false)
	if err != nil {
		return protocol.State{}, err
	}
	defer j.fleet.Close() // nothing was written
	state, err := j.stations[r.Chief].state(ctx)
	if err != nil {
		return state, fmt.Errorf("host %s: %w", j.stations[r.Chief].host.Name, err)
	}
	return state, nil
}

// errForgotten says that a host keeps nothing of a job.
var errForgotten = errors.New("nothing of the job is left there")

// state reads what the host's agent knows, or last knew.
func (s *station) state(ctx context.Context) (protocol.State, error) {
	var state protocol.State
	var stdout bytes.Buffer
	stderr := tail{limit: 4 << 10}
	if err := s.Run(ctx, s.command("state "+s.where()), nil, &stdout, &stderr); err != nil {
		if code := exitStatus(err); code == noAgent || code == 127 { // 127: the agent itself was pruned
			return state, errForgotten
		}
		return state, explain(err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &state); err != nil {
		return state, fmt.Errorf("state of job %s: %w", s.job, err)
	}
	return state, nil
}

var safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// searchHosts rebuilds records from what the hosts themselves know, for a
// machine that did not launch the job. Hosts out of reach are told of, and an
// error only where the others know nothing.
func searchHosts(ctx context.Context, reach Reach, v *voice) ([]record, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	f, err := openFleet(ctx, reach, v)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	defer f.Close() // nothing was written
	found := make([][]protocol.State, len(f.remotes))
	index := map[*remote]int{}
	for i, r := range f.remotes {
		index[r] = i
	}
	err = f.each(ctx, func(ctx context.Context, r *remote) error {
		states, err := r.states(ctx, v)
		found[index[r]] = states
		return err
	})
	if rs := assemble(f, found); err == nil || len(rs) > 0 && context.Cause(ctx) == nil {
		if err != nil {
			v.say("%s", strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
		}
		return rs, nil
	}
	return nil, err
}

// states lists the states of all jobs that the host has a folder of. One that
// cannot be read is told of and left out.
func (r *remote) states(ctx context.Context, v *voice) ([]protocol.State, error) {
	const script = `for f in "$HOME"/.plx/jobs/*/*/state.json; do if [ -r "$f" ]; then printf '%s\t' "$f"; tr -d '\n' <"$f"; echo; fi; done`
	var stdout bytes.Buffer
	if err := r.Run(ctx, script, nil, &stdout, nil); err != nil {
		return nil, fmt.Errorf("look for jobs: %w", err)
	}
	var states []protocol.State
	for line := range strings.Lines(stdout.String()) {
		path, text, _ := strings.Cut(line, "\t")
		var s protocol.State
		if json.Unmarshal([]byte(text), &s) != nil || !safeName.MatchString(s.Job) || !safeName.MatchString(s.Folder) || !isBlob(s.Binary) {
			v.say("host %s: %s is not a job's state, it is left out", r.host.Name, path)
			continue
		}
		states = append(states, s)
	}
	return states, nil
}

// isBlob reports whether path is that of a blob, which can be called as an
// agent without asking a shell what it means.
func isBlob(path string) bool {
	sum, ok := strings.CutPrefix(path, envsync.BlobPath(""))
	return ok && safeName.MatchString(sum)
}

// assemble makes one record of each job from its hosts' states. Where homes
// are shared a host sees the others' folders too: each takes its own.
func assemble(f *fleet, found [][]protocol.State) []record {
	jobs := map[string]*record{}
	chief := map[string]int{} // the generation of the chief that was found
	for i, states := range found {
		for _, s := range states {
			if s.Folder != f.remotes[i].folder() {
				continue
			}
			r := jobs[s.Job]
			if r == nil {
				r = &record{Job: s.Job, Name: s.Name, Created: s.Started, Detached: s.Detached, Grace: DefaultGrace, Lease: s.Lease, Checkpoints: s.Checkpoints, elsewhere: true}
				jobs[s.Job] = r
			}
			h := hostRecord{Line: f.remotes[i].host.String(), Folder: s.Folder, Binary: s.Binary}
			for task := range s.Tasks {
				h.Tasks = append(h.Tasks, task)
				if task == "worker:0" && s.Generation >= chief[s.Job] { // a host that was left out has an older one
					r.Chief, r.Verdict, chief[s.Job] = len(r.Hosts), s.Verdict, s.Generation
				}
			}
			r.Restarts = r.Restarts || s.Generation > 0
			slices.Sort(h.Tasks)
			r.Hosts = append(r.Hosts, h)
		}
	}
	var rs []record
	for _, r := range jobs {
		rs = append(rs, *r)
	}
	slices.SortFunc(rs, func(a, b record) int { return a.Created.Compare(b.Created) })
	return rs
}
