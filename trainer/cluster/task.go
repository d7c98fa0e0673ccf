package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Role is the role of a task in its job: worker or parameter server.
type Role string

// The roles of a job's tasks. Worker 0 is called the chief.
const (
	Worker Role = "worker"
	PS     Role = "ps"
)

// Task names one process of a job: a role and an index within the role,
// written "worker:3" or "ps:0". A worker's index is its rank.
type Task struct {
	Role  Role
	Index int
}

// Chief is worker 0. Besides its work as a worker, it initialises the
// variables, prints progress and saves checkpoints.
var Chief = Task{Role: Worker}

func (t Task) String() string { return string(t.Role) + ":" + strconv.Itoa(t.Index) }

// IsChief reports whether t is worker 0.
func (t Task) IsChief() bool { return t == Chief }

// ParseTask parses the name of a task as String returns it.
func ParseTask(s string) (Task, error) {
	role, index, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(index)
	t := Task{Role: Role(role), Index: n}
	if !ok || err != nil || n < 0 || (t.Role != Worker && t.Role != PS) || t.String() != s {
		return Task{}, fmt.Errorf("task %q: want worker:N or ps:N", s)
	}
	return t, nil
}

// MarshalText returns the same text as String.
func (t Task) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses the name of a task as MarshalText returns it.
func (t *Task) UnmarshalText(text []byte) error {
	parsed, err := ParseTask(string(text))
	*t = parsed
	return err
}

// Spec contains the address (host:port) at which each task receives data, by
// role and index.
type Spec struct {
	PS     []string `json:"ps"`
	Worker []string `json:"worker"`
}

// Addr returns the address of t, or "" if the job has no such task.
func (s Spec) Addr(t Task) string {
	list := s.Worker
	if t.Role == PS {
		list = s.PS
	}
	if t.Index < 0 || t.Index >= len(list) {
		return ""
	}
	return list[t.Index]
}

// Set stores the address of t and grows the list as needed. If t comes from
// another process, the caller must first check that its index is not too
// large.
func (s *Spec) Set(t Task, addr string) {
	list := &s.Worker
	if t.Role == PS {
		list = &s.PS
	}
	for len(*list) <= t.Index {
		*list = append(*list, "")
	}
	(*list)[t.Index] = addr
}

// lists returns a copy of s with empty lists instead of nil ones. JSON would
// encode nil as null, but programs in other languages expect a list.
func (s Spec) lists() Spec {
	return Spec{PS: append([]string{}, s.PS...), Worker: append([]string{}, s.Worker...)}
}

// unaddressed returns the first task in the lists whose address is empty.
func (s Spec) unaddressed() (Task, bool) {
	if i := slices.Index(s.PS, ""); i >= 0 {
		return Task{PS, i}, true
	}
	i := slices.Index(s.Worker, "")
	return Task{Worker, i}, i >= 0
}
