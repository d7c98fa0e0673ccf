package protocol

import "time"

// Checkup asks an agent what it finds on its host.
type Checkup struct {
	Secret  []byte `json:"secret"`  // all agents of the examination have it
	Index   int    `json:"index"`   // of the host
	Addr    string `json:"addr"`    // its data address, without a port; "": it is not known
	PortLow int    `json:"portLow"` // first port; 0 with PortHigh 0: any
	// PortHigh is the last port.
	PortHigh int `json:"portHigh"`
}

// HostReport is what an agent finds on its host.
type HostReport struct {
	Addr    string      `json:"addr,omitempty"`    // where it serves the other agents, with the port
	Refused string      `json:"refused,omitempty"` // why it cannot serve them
	Links   []Interface `json:"links"`             // network interfaces
	// Interface is the name of the one that has the data address; "": none has it.
	Interface string `json:"interface,omitempty"`

	NoSubreaper string `json:"noSubreaper,omitempty"` // why it cannot adopt orphans; "": it can
	NoPidfd     string `json:"noPidfd,omitempty"`     // why there is no handle on a process; "": there is
	Scope       bool   `json:"scope"`                 // the user's systemd can hold a detached job
	LogindKills bool   `json:"logindKills,omitempty"` // logind kills the user's processes when the login ends
	PidsMax     int64  `json:"pidsMax,omitempty"`     // most processes of the control group; 0: no limit

	Now   int64         `json:"now"`  // its clock when it began to answer, in nanoseconds since 1970
	Took  time.Duration `json:"took"` // until it had found all this
	Facts *HostFacts    `json:"facts,omitempty"`

	Strays []Stray `json:"strays,omitempty"`  // jobs that are over, of which processes are left
	Old    int     `json:"old,omitempty"`     // jobs that ended long ago and were not pruned
	Broken string  `json:"problem,omitempty"` // why the jobs could not be listed
}

// HostFacts is what a host says of itself. A number that is [NotKnown] was not to be had.
type HostFacts struct {
	OS        string `json:"os"`     // as uname prints it
	Arch      string `json:"arch"`   // as uname prints it
	Kernel    string `json:"kernel"` // version
	HostName  string `json:"hostname"`
	User      string `json:"user"`
	UID       int    `json:"uid"`
	Home      Folder `json:"home"` // ~/.plx
	Tmp       Folder `json:"tmp"`
	Shm       Folder `json:"shm"`        // /dev/shm
	OpenFiles Limit  `json:"open_files"` // of what a login starts
	Processes Limit  `json:"processes"`  // of the user
}

// NotKnown is a number that the host did not tell.
const NotKnown = -1

// Folder is what a host says of a folder.
type Folder struct {
	Path       string `json:"path"`
	Missing    bool   `json:"missing,omitempty"`
	Unwritable string `json:"unwritable,omitempty"` // why no file could be written; "": one could
	NoExec     bool   `json:"noexec,omitempty"`     // a program there cannot be executed
	Mount      string `json:"mount,omitempty"`      // where the file system is mounted
	SizeKiB    int64  `json:"size_kib"`             // of the file system; NotKnown also if it has no limit, as FreeKiB then
	FreeKiB    int64  `json:"free_kib"`
	FreeInodes int64  `json:"free_inodes"` // NotKnown also for file systems that do not count them
}

// Limit is a resource limit. Unlimited is a large number.
type Limit struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

// Unlimited is more than any limit.
const Unlimited = int64(1) << 62

// Stray is a job of which processes are left although its agent is gone.
type Stray struct {
	Job  string `json:"job"`
	PIDs []int  `json:"pids"`
}

// CheckupFailure says why a peer could not be reached.
type CheckupFailure struct {
	Unreached
	// Connected tells that the connection was made, and that what followed did not
	// arrive.
	Connected bool `json:"connected,omitempty"`
}
