package launcher

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

// record is what the launching machine remembers of a job: where it runs and
// which agent binary answers for it there. It is ~/.plx/jobs/<job>/job.json.
type record struct {
	Job      string            `json:"job"`
	Name     string            `json:"name,omitempty"`
	Program  string            `json:"program"`
	Created  time.Time         `json:"created"`
	Detached bool              `json:"detached,omitempty"`
	Restarts bool              `json:"restarts,omitempty"` // tasks may move to other hosts
	Embedded bool              `json:"embedded,omitempty"`
	Launcher int               `json:"launcher"` // pid of an attached launcher
	Grace    time.Duration     `json:"grace"`
	Lease    time.Duration     `json:"lease,omitempty"`
	Hosts    []hostRecord      `json:"hosts"`
	Chief    int               `json:"chief"`          // index into Hosts: where the verdict will be
	Laid     int               `json:"laid,omitempty"` // generation of the layout that Hosts are of, where an agent told it
	Verdict  *protocol.Verdict `json:"verdict,omitempty"`

	Checkpoints string `json:"checkpoints,omitempty"` // their name under ~/.plx/ckpt on the hosts
	Saves       bool   `json:"saves,omitempty"`       // the program was told to make some

	elsewhere bool // put together from what hosts know, maybe not all of it
}

// hostRecord is one host of a record.
type hostRecord struct {
	Line   string   `json:"line"` // as in a resource file
	Folder string   `json:"folder"`
	Binary string   `json:"binary"`         // relative to the home
	Tasks  []string `json:"tasks"`          // in its first generation
	Left   bool     `json:"left,omitempty"` // it is no host of the job any more: logs may lie there
}

func (l *launch) record() record {
	r := record{Job: l.job, Name: l.cfg.Name, Program: filepath.Base(l.cfg.Program), Created: l.created,
		Detached: l.cfg.Detach, Embedded: len(l.cfg.Hosts) == 0, Launcher: os.Getpid(), Grace: l.cfg.Grace, Lease: l.cfg.Lease,
		Restarts: l.cfg.Restarts.Max > 0 || len(l.laid) > 0, Checkpoints: l.checkpoints, Saves: saves(l.cfg.Args)}
	teller := l.teller()
	for i, s := range l.stations[:max(len(l.place.hosts), len(l.laid))] {
		hr := hostRecord{Line: s.host.String(), Folder: s.folder, Binary: s.binary, Left: i < len(l.laid) && l.laid[i].Left, Tasks: l.taskNames(i)}
		if i == teller {
			r.Chief = len(r.Hosts)
		}
		if !hr.Left || !l.again(i) {
			r.Hosts = append(r.Hosts, hr)
		}
	}
	return r
}

// taskNames are the tasks that host i began with.
func (l *launch) taskNames(i int) (names []string) {
	var tasks []protocol.TaskSpec
	if i < len(l.place.hosts) {
		tasks = l.tasks(i)
	} else if tasks = l.laid[i].Tasks; len(tasks) == 0 {
		tasks = l.joined[i-len(l.place.hosts)].Tasks
	}
	for _, t := range tasks {
		names = append(names, t.Task.String())
	}
	return names
}

// again reports whether host i, which has left, has joined again, or tried to.
func (l *launch) again(i int) bool {
	for _, s := range l.stations[i+1 : max(len(l.place.hosts), len(l.laid))] {
		if s.folder == l.stations[i].folder {
			return true
		}
	}
	return false
}

// chief is the index of the host that runs worker:0.
func (l *launch) chief() int {
	for i, h := range l.place.hosts {
		for _, t := range h.tasks {
			if t.task.IsChief() {
				return i
			}
		}
	}
	panic("placement without a chief") // place refuses it
}

// teller is the host that knows of the job's state: the one that conducts it
// when it is detached, else where worker:0 is now.
func (l *launch) teller() int {
	for i, h := range l.laid {
		for _, t := range h.Tasks {
			if t.Task.IsChief() && !l.cfg.Detach {
				return i
			}
		}
	}
	return l.chief()
}

// finish notes the verdict in the record.
func (l *launch) finish(v protocol.Verdict) {
	r := l.record()
	r.Verdict = &v
	if err := saveRecord(r); err != nil {
		l.voice.say("%v", err)
	}
}

func jobsFolder() (string, error) {
	home := os.Getenv("HOME")
	if home == "" {
		return "", errors.New("HOME is not set, so there is no place for ~/.plx")
	}
	return filepath.Join(home, ".plx", "jobs"), nil
}

// saveRecord writes the record whole or not at all.
func saveRecord(r record) error {
	folder, err := jobsFolder()
	if err != nil {
		return err
	}
	folder = filepath.Join(folder, r.Job)
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("record job %s: %w", r.Job, err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("record job %s: %w", r.Job, err)
	}
	temporary := filepath.Join(folder, fmt.Sprintf(".job.json.%d", os.Getpid()))
	if err := os.WriteFile(temporary, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("record job %s: %w", r.Job, err)
	}
	if err := os.Rename(temporary, filepath.Join(folder, "job.json")); err != nil {
		return fmt.Errorf("record job %s: %w", r.Job, err)
	}
	return nil
}

// loadRecords returns all records, the oldest first. One that cannot be read
// is left out: it is from another version or half removed.
func loadRecords() ([]record, error) {
	folder, err := jobsFolder()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var rs []record
	for _, e := range entries {
		if r, err := loadRecord(filepath.Join(folder, e.Name())); err == nil {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b record) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Job, b.Job)) })
	return rs, nil
}

func loadRecord(folder string) (record, error) {
	var r record
	text, err := os.ReadFile(filepath.Join(folder, "job.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.Job != filepath.Base(folder) || r.Chief < 0 || r.Chief >= len(r.Hosts)) {
		err = fmt.Errorf("%s: not a job's record", folder)
	}
	return r, err
}

// reach returns how the record's hosts are reached: an embedded job's by
// embedded servers of this process, since they are this machine.
func (r record) reach(accept bool) (Reach, error) {
	if r.Embedded {
		return Reach{LocalHosts: len(r.Hosts), LocalWorkers: 1}, nil
	}
	var lines []string
	for _, h := range r.Hosts {
		lines = append(lines, h.Line)
	}
	hosts, err := hostfile.ParseLines(lines)
	if err != nil {
		return Reach{}, fmt.Errorf("record of job %s: %w", r.Job, err)
	}
	return Reach{Hosts: hosts, AcceptNewHostKeys: accept}, nil
}
