package protocol

import "time"

// Checkup asks an agent to examine its host. plx doctor sends it.
type Checkup struct {
	Secret  []byte `json:"secret"`  // all agents of this checkup have this secret, to authenticate each other
	Index   int    `json:"index"`   // index of the host in the checkup's list of hosts
	Addr    string `json:"addr"`    // IP address of the host on the data network, without a port; empty if unknown
	PortLow int    `json:"portLow"` // first port on which the agent may listen; any port may be used if PortLow and PortHigh are both 0
	// PortHigh is the last port on which the agent may listen.
	PortHigh int `json:"portHigh"`
}

// HostReport is the result of a Checkup: what an agent found on its host.
type HostReport struct {
	Addr    string      `json:"addr,omitempty"`    // IP:PORT at which the agent accepts connections of other agents
	Refused string      `json:"refused,omitempty"` // why the agent cannot listen for other agents; empty if it can, or if Checkup.Addr was empty
	Links   []Interface `json:"links"`             // network interfaces
	// Interface is the name of the network interface that has the data
	// address. It is empty if no interface has that address.
	Interface string `json:"interface,omitempty"`

	NoSubreaper string `json:"noSubreaper,omitempty"` // why the agent cannot become a child subreaper (prctl); empty if it can
	NoPidfd     string `json:"noPidfd,omitempty"`     // why the agent cannot use pidfd_open; empty if it can
	Scope       bool   `json:"scope"`                 // true if a detached job can run in a systemd scope of the user, and so survive the logout
	LogindKills bool   `json:"logindKills,omitempty"` // true if systemd-logind kills the user's processes at logout
	PidsMax     int64  `json:"pidsMax,omitempty"`     // the most processes that the agent's cgroup may have; 0 means no limit

	Now   int64         `json:"now"`  // the host's clock when the agent began the checkup, in nanoseconds since 1970
	Took  time.Duration `json:"took"` // duration of the checkup until the agent begins to listen for other agents
	Facts *HostFacts    `json:"facts,omitempty"`

	Strays []Stray `json:"strays,omitempty"`  // jobs that have ended but have processes left on the host
	Old    int     `json:"old,omitempty"`     // number of jobs that ended more than 30 days ago and still have files on the host
	Broken string  `json:"problem,omitempty"` // why the agent could not list the jobs on the host; empty if it could
}

// HostFacts describes the operating system, user, file systems and limits of a
// host. A number is [NotKnown] if the host could not determine it.
type HostFacts struct {
	OS        string `json:"os"`     // operating system, as uname prints it
	Arch      string `json:"arch"`   // processor architecture, as uname prints it
	Kernel    string `json:"kernel"` // version of the kernel
	HostName  string `json:"hostname"`
	User      string `json:"user"`
	UID       int    `json:"uid"`
	Home      Folder `json:"home"` // the folder ~/.plx
	Tmp       Folder `json:"tmp"`
	Shm       Folder `json:"shm"`        // the folder /dev/shm
	OpenFiles Limit  `json:"open_files"` // limit on open files of a process that a login shell starts
	Processes Limit  `json:"processes"`  // limit on processes of the user
}

// NotKnown stands for a number that the host could not determine.
const NotKnown = -1

// Folder describes a directory on a host and its file system.
type Folder struct {
	Path       string `json:"path"`
	Missing    bool   `json:"missing,omitempty"`
	Unwritable string `json:"unwritable,omitempty"` // why the agent could not create a file in the folder; empty if it could
	NoExec     bool   `json:"noexec,omitempty"`     // true if the host cannot execute a program that is stored in the folder
	Mount      string `json:"mount,omitempty"`      // mount point of the file system
	SizeKiB    int64  `json:"size_kib"`             // size of the file system in KiB; NotKnown for a file system without a fixed size, and then FreeKiB too
	FreeKiB    int64  `json:"free_kib"`
	FreeInodes int64  `json:"free_inodes"` // number of unused inodes; NotKnown also for a file system that does not count inodes
}

// Limit is a resource limit of a process (setrlimit). [Unlimited] stands for
// no limit.
type Limit struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

// Unlimited is the value of a Limit without a limit. It is larger than any
// real limit.
const Unlimited = int64(1) << 62

// Stray is a job that has processes left on the host although its agent has
// ended.
type Stray struct {
	Job  string `json:"job"`
	PIDs []int  `json:"pids"`
}

// CheckupFailure reports that an agent could not exchange messages with
// another agent, and why it could not.
type CheckupFailure struct {
	Unreached
	// Connected is true if the TCP connection was established but the messages
	// sent over it did not arrive.
	Connected bool `json:"connected,omitempty"`
}
