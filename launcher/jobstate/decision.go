package jobstate

// decision is what a small machine wants the job to do next; nil is nothing. Only
// Machine.decide reads it.
type decision interface{ decision() }

// The decisions, by the machine that takes them.
type (
	// start: a host has answered the request of a stage.
	answered struct {
		host  int
		stage stage
	}
	// start: the job cannot start, because of a host.
	refused struct {
		host   int
		reason string
	}
	// start, scale: tasks or hosts have failed.
	failed struct{ failures []failure }
	// tolerance: no task that the job needs has failed while others were in doubt.
	doubtOver struct{}
	// save: the stop that waited for the save goes on.
	stopNow struct{ ask StopAsked }
	// scale: the chief has saved after a step and holds the job.
	held struct{ step int64 }
	// restart: another generation follows. bar is a host that gets no tasks in it,
	// -1 is none.
	another struct{ bar int }
	// restart: no other generation follows.
	final struct{ why string }
	// regroup: the next generation begins.
	begin struct{}
	// regroup: the hosts that a change of hosts wants are too few.
	tooFew struct{ why string }
	// regroup: the next generation cannot begin.
	abandon struct{ why string }
)

func (answered) decision()  {}
func (refused) decision()   {}
func (failed) decision()    {}
func (doubtOver) decision() {}
func (stopNow) decision()   {}
func (held) decision()      {}
func (another) decision()   {}
func (final) decision()     {}
func (begin) decision()     {}
func (tooFew) decision()    {}
func (abandon) decision()   {}
