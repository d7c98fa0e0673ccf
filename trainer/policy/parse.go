package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// modes are those that ParseSync knows; the first is the zero Sync's.
var modes = []*mode{&synchronous, &asynchronous, &bounded, &grouped, &backup}

// Sync is a mode with its number. The zero value is sync.
type Sync struct {
	mode   *mode // nil means the first of modes, which is sync
	number int   // the mode's number; 0 if the mode takes none
}

// ParseSync reads what --sync says: a mode's name and, after a colon, its number.
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

// String writes what ParseSync reads.
func (s Sync) String() string {
	if s.rules().numbered == "" {
		return s.rules().name
	}
	return fmt.Sprintf("%s:%d", s.mode.name, s.number)
}

// MarshalText writes the mode as String does.
func (s Sync) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Sync) UnmarshalText(text []byte) error {
	parsed, err := ParseSync(string(text))
	*s = parsed
	return err
}

// Check says what is wrong with s for so many workers.
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

// Groups is how many groups n workers form.
func (s Sync) Groups(n int) int {
	switch s.rules().groups {
	case eachWorker:
		return n
	case asNumbered:
		return s.number
	}
	return 1
}

// Quorum is of how many members of a group the gradients make a step.
func (s Sync) Quorum(members int) int {
	if s.rules().dropsLast {
		return members - s.number
	}
	return members
}

// Competes reports whether only the first gradients of a step count, so that
// workers take unequal numbers of steps.
func (s Sync) Competes() bool { return s.rules().dropsLast }

// Copies is how many copies of a value a holder keeps for so many workers.
func (s Sync) Copies(workers int) int {
	switch s.rules().copies {
	case perGroup:
		return s.Groups(workers)
	case perWorker:
		return workers
	}
	return 0
}

// Copy is the copy of a value that a worker of a group gets; -1 is the value itself.
func (s Sync) Copy(rank, group int) int {
	switch s.rules().copies {
	case perGroup:
		return group
	case perWorker:
		return rank
	}
	return -1
}

// HoldsBack reports whether values are sent when the Pace says so, all at once.
func (s Sync) HoldsBack() bool { return s.rules().holdsBack }

// Cuts reports whether a checkpoint is a consistent cut, each group with a
// number of steps of its own.
func (s Sync) Cuts() bool { return s.rules().cuts }

// ToleratesLoss reports whether training goes on after a worker other than the
// chief is lost, at least as long as MostLost says.
func (s Sync) ToleratesLoss() bool { return s.rules().losses != noLoss }

// MostLost is how many of so many workers may be lost.
func (s Sync) MostLost(workers int) int {
	switch s.rules().losses {
	case anyLoss:
		return workers
	case numberedLoss:
		return s.number
	}
	return 0
}

// NewPace returns the pace of a shard holder; nil if the mode has none. steps are,
// by rank, how many steps a worker has finished.
func (s Sync) NewPace(steps []uint64) Pace {
	if s.rules().pace == nil {
		return nil
	}
	return s.rules().pace(s.number, steps)
}

// NewSelection returns the selection of the first shard holder, from a step on; nil
// if the mode has none.
func (s Sync) NewSelection(workers int, first uint64) Selection {
	if s.rules().selection == nil {
		return nil
	}
	return s.rules().selection(s.number, workers, first)
}

// StartsAhead reports whether a worker that has finished so many steps, as the
// others have, has to wait before it takes another.
func (s Sync) StartsAhead(steps []uint64, rank int) bool {
	pace := s.NewPace(steps)
	if pace == nil || !s.HoldsBack() {
		return false
	}
	released, err := pace.Wait(rank, steps[rank])
	return err != nil || !slices.Contains(released, rank)
}
