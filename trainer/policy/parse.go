package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// modes are the synchronisation modes that ParseSync knows. The first one is
// the zero value of Sync.
var modes = []*mode{&synchronous, &asynchronous, &bounded, &grouped, &backup}

// Sync is a synchronisation mode with its number, such as ssp:3. The zero
// value is the mode sync.
type Sync struct {
	mode   *mode // nil means modes[0], which is sync
	number int   // number after the colon, such as 3 in ssp:3; 0 if the mode has no number
}

// ParseSync parses a value of the flag --sync: the name of a mode and, for
// some modes, a colon and a number.
func ParseSync(text string) (Sync, error) {
	name, number, numbered := strings.Cut(text, ":")
	i := slices.IndexFunc(modes, func(m *mode) bool { return m.name == name })
	if i < 0 || numbered != (modes[i].numbered != "") {
		return Sync{}, badSync(text)
	}
	if i == 0 {
		return Sync{}, nil
	}
	if !numbered {
		return Sync{mode: modes[i]}, nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || strconv.Itoa(n) != number {
		return Sync{}, badSync(text)
	}
	return Sync{modes[i], n}, nil
}

func badSync(text string) error {
	var want []string
	for _, m := range modes {
		if m.numbered != "" {
			want = append(want, m.name+":"+m.numbered)
		} else {
			want = append(want, m.name)
		}
	}
	last := len(want) - 1
	return fmt.Errorf("synchronisation %q: want %s or %s", text, strings.Join(want[:last], ", "), want[last])
}

func (s Sync) rules() *mode {
	if s.mode == nil {
		return modes[0]
	}
	return s.mode
}

// String returns the text that ParseSync parses, such as "ssp:3".
func (s Sync) String() string {
	if s.rules().numbered == "" {
		return s.rules().name
	}
	return fmt.Sprintf("%s:%d", s.mode.name, s.number)
}

// MarshalText returns the text of String.
func (s Sync) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the text of MarshalText.
func (s *Sync) UnmarshalText(text []byte) error {
	parsed, err := ParseSync(string(text))
	*s = parsed
	return err
}

// Check returns an error if the number in s, such as 2 in "backup:2", does not
// fit the number of workers.
func (s Sync) Check(workers int) error {
	switch m := s.rules(); {
	case m.groups == asNumbered && (s.number < 1 || s.number > workers):
		return fmt.Errorf("synchronisation %s: want 1 to %d groups, at most one per worker", s, workers)
	case m.dropsLast && s.number >= workers:
		return fmt.Errorf("synchronisation %s: want 0 to %d backup workers among %d", s, workers-1, workers)
	}
	return nil
}

// InStep reports whether all workers take every step together.
func (s Sync) InStep() bool { return s.rules().inStep }

// Groups returns the number of groups that n workers form. The workers of a
// group take each step together.
func (s Sync) Groups(n int) int {
	switch s.rules().groups {
	case eachWorker:
		return n
	case asNumbered:
		return s.number
	}
	return 1
}

// Quorum returns the number of gradients that complete a step in a group of
// workers. members is the size of the group.
func (s Sync) Quorum(members int) int {
	if s.rules().dropsLast {
		return members - s.number
	}
	return members
}

// WorkersCompete reports whether a step uses only the gradients that arrive
// first. Slow workers then complete fewer steps than others.
func (s Sync) WorkersCompete() bool { return s.rules().dropsLast }

// Copies returns the number of copies of each value that a shard holder keeps
// in a job with the given number of workers. A shard holder is a task that
// stores parts of the variables.
func (s Sync) Copies(workers int) int {
	switch s.rules().copies {
	case perGroup:
		return s.Groups(workers)
	case perWorker:
		return workers
	}
	return 0
}

// Copy returns the index of the copy of a value that a worker receives. -1
// means that the value is sent without a copy.
func (s Sync) Copy(rank, group int) int {
	switch s.rules().copies {
	case perGroup:
		return group
	case perWorker:
		return rank
	}
	return -1
}

// DelaysAnswers reports whether a worker gets no value until it may continue,
// and then gets all values at once. If false, each value is sent to the worker
// as soon as it is updated.
func (s Sync) DelaysAnswers() bool { return s.rules().holdsBack }

// UsesCuts reports whether each group of workers has its own number of steps in a
// checkpoint.
func (s Sync) UsesCuts() bool { return s.rules().cuts }

// ToleratesLoss reports whether the training can continue after the loss of a
// worker other than the chief (worker 0). MostLost returns how many may be
// lost.
func (s Sync) ToleratesLoss() bool { return s.rules().losses != noLoss }

// MostLost returns the maximum number of lost workers with which the training
// continues.
func (s Sync) MostLost(workers int) int {
	switch s.rules().losses {
	case anyLoss:
		return workers
	case numberedLoss:
		return s.number
	}
	return 0
}

// NewPace returns a new Pace, which decides how long a fast worker waits for
// slower ones. It is for a shard holder (a task that stores parts of the
// variables). NewPace returns nil if workers in this mode need no Pace. steps,
// indexed by rank, is the number of finished steps of each worker.
func (s Sync) NewPace(steps []uint64) Pace {
	if s.rules().pace == nil {
		return nil
	}
	return s.rules().pace(s.number, steps)
}

// NewSelection returns a Selection, which decides whose gradients a step uses.
// Only one task calls it: the first of the shard holders. It returns nil if the
// mode always uses all gradients. The training begins with step first.
func (s Sync) NewSelection(workers int, first uint64) Selection {
	if s.rules().selection == nil {
		return nil
	}
	return s.rules().selection(s.number, workers, first)
}

// StartsAhead reports whether the worker with the given rank must wait for
// other workers before its next step. steps, indexed by rank, is the number of
// finished steps of each worker.
func (s Sync) StartsAhead(steps []uint64, rank int) bool {
	pace := s.NewPace(steps)
	if pace == nil || !s.DelaysAnswers() {
		return false
	}
	released, err := pace.Wait(rank, steps[rank])
	return err != nil || !slices.Contains(released, rank)
}
