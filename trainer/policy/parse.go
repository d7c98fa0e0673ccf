package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plx-run/plx/trainer/optimizer"
)

// modes are those that ParseSync knows; the first is the zero Sync's.
var modes = []*Mode{&synchronous, &asynchronous, &bounded, &grouped, &backup}

// Register makes a mode known to ParseSync, before any training begins.
func Register(m *Mode) { modes = append(modes, m) }

// Sync is a mode with its number. The zero value is sync.
type Sync struct {
	mode   *Mode // nil means the first of modes, which is sync
	number int   // the mode's number; 0 if the mode takes none
}

// ParseSync reads what --sync says: a mode's name and, after a colon, its number.
func ParseSync(text string) (Sync, error) {
	name, number, numbered := strings.Cut(text, ":")
	i := slices.IndexFunc(modes, func(m *Mode) bool { return m.Name == name })
	if i < 0 || numbered != (modes[i].Numbered != "") {
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
		if m.Numbered != "" {
			want = append(want, m.Name+":"+m.Numbered)
		} else {
			want = append(want, m.Name)
		}
	}
	last := len(want) - 1
	return fmt.Errorf("synchronisation %q: want %s or %s", text, strings.Join(want[:last], ", "), want[last])
}

func (s Sync) rules() *Mode {
	if s.mode == nil {
		return modes[0]
	}
	return s.mode
}

// String writes what ParseSync reads.
func (s Sync) String() string {
	if s.rules().Numbered == "" {
		return s.rules().Name
	}
	return fmt.Sprintf("%s:%d", s.mode.Name, s.number)
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
	case m.Groups == AsNumbered && (s.number < 1 || s.number > workers):
		return fmt.Errorf("synchronisation %s: want 1 to %d groups, at most one per worker", s, workers)
	case m.DropsLast && s.number >= workers:
		return fmt.Errorf("synchronisation %s: want 0 to %d backup workers among %d", s, workers-1, workers)
	}
	return nil
}

// InStep reports whether all workers take every step together.
func (s Sync) InStep() bool { return s.rules().InStep }

// Groups is how many groups n workers form.
func (s Sync) Groups(n int) int {
	switch s.rules().Groups {
	case EachWorker:
		return n
	case AsNumbered:
		return s.number
	}
	return 1
}

// Quorum is of how many members of a group the gradients make a step.
func (s Sync) Quorum(members int) int {
	if s.rules().DropsLast {
		return members - s.number
	}
	return members
}

// Competes reports whether only the first gradients of a step count, so that
// workers take unequal numbers of steps.
func (s Sync) Competes() bool { return s.rules().DropsLast }

// Update returns the rule by which holders apply a sum, and whether they
// divide it by its virtual workers whatever the program says.
func (s Sync) Update(program optimizer.Settings) (rule optimizer.Settings, divide bool) {
	if update := s.rules().Update; update != nil {
		return *update, true
	}
	return program, false
}

// Copies is how many copies of a value a holder keeps for so many workers.
func (s Sync) Copies(workers int) int {
	switch s.rules().Copies {
	case PerGroup:
		return s.Groups(workers)
	case PerWorker:
		return workers
	}
	return 0
}

// Copy is the copy of a value that a worker of a group gets; -1 is the value itself.
func (s Sync) Copy(rank, group int) int {
	switch s.rules().Copies {
	case PerGroup:
		return group
	case PerWorker:
		return rank
	}
	return -1
}

// HoldsBack reports whether values are sent when the Pace says so, all at once.
func (s Sync) HoldsBack() bool { return s.rules().HoldsBack }

// Cuts reports whether a checkpoint is a consistent cut, each group with a
// number of steps of its own.
func (s Sync) Cuts() bool { return s.rules().Cuts }

// ToleratesLoss reports whether training goes on after a worker other than the
// chief is lost, at least as long as MostLost says.
func (s Sync) ToleratesLoss() bool { return s.rules().Losses != NoLoss }

// MostLost is how many of so many workers may be lost.
func (s Sync) MostLost(workers int) int {
	switch s.rules().Losses {
	case AnyLoss:
		return workers
	case NumberedLoss:
		return s.number
	}
	return 0
}

// NewPace returns a holder's pace, or nil; see States.
func (s Sync) NewPace(steps []uint64) Pace {
	return s.states().Pace(s.number, steps)
}

// NewSelection returns the first holder's selection, or nil; see States.
func (s Sync) NewSelection(workers int, first uint64) Selection {
	return s.states().Selection(s.number, workers, first)
}

// NewWorker returns a worker's state, or nil; see States.
func (s Sync) NewWorker() Worker {
	return s.states().Worker(s.number)
}

func (s Sync) states() States {
	if states := s.rules().States; states != nil {
		return states
	}
	return stateless{}
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
