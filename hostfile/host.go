package hostfile

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
)

// Host is one host of a resource file with the devices that a job may use on
// it.
type Host struct {
	User     string  // login name for SSH; empty if the host's line gives no user
	Name     string  // name or address as written; an IPv6 address has no brackets
	Port     int     // SSH port; 0 if the host's line gives no port
	Devices  Devices // devices of the host that workers may use
	DataAddr string  // IP address under which tasks on other hosts reach this host's tasks; empty for the default address
	// Interface is the name of the network interface for the data between
	// tasks; empty for the default interface.
	Interface string
	// Env lists environment variables for the host's tasks as NAME=VALUE, in
	// the order of the line and without duplicate names. A value may be a
	// secret.
	Env []string
	Pos Position // file and line that name the host
}

// WithoutSettings returns a copy of the host without Interface and Env. The copy contains
// no secrets and may be written to disk.
func (h Host) WithoutSettings() Host {
	h.Interface, h.Env = "", nil
	return h
}

// hasSettings reports whether the host's line has addr=, nic= or environment
// variables.
func (h Host) hasSettings() bool { return h.DataAddr != "" || h.Interface != "" || len(h.Env) > 0 }

// Kind is the way in which a line specifies the devices of its host: all GPUs,
// a list of ids, a number of CPU workers, and so on.
type Kind int

const (
	// AllGPUs means every GPU found on the host except Devices.Excluded. On a
	// host without GPUs it means one CPU worker.
	AllGPUs Kind = iota
	// GPUs means the GPUs and MIG devices in Devices.IDs, in that order.
	GPUs
	// CPUs means Devices.Count workers that use no GPU.
	CPUs
	// ServerOnly means a parameter server and no worker.
	ServerOnly
	// Slots means the GPUs 0 to Devices.Count-1 except Devices.Excluded. On a
	// host without GPUs it means the same number of CPU workers.
	Slots
)

// Devices specifies the devices of a host that workers may use. For the kinds
// AllGPUs and Slots, the devices are known only after plx has probed the host.
type Devices struct {
	Kind     Kind
	IDs      []ID // GPU ids, only for kind GPUs: at least one, without duplicates, in the order of the line
	Count    int  // number of devices, only for the kinds CPUs and Slots: at least 1
	Excluded []ID // ids of GPUs to leave out, sorted, only for the kinds AllGPUs and Slots; for Slots all of them are indices
}

// Position is a line of a resource file, or one of the --host flags.
type Position struct {
	File string
	Line int // number of the line, from 1
}

// String returns the position as "file:line".
func (p Position) String() string {
	return p.File + ":" + strconv.Itoa(p.Line)
}

// String returns the host as a line of a resource file. Parsing the line
// returns an equal Host, except for Pos.
func (h Host) String() string {
	var b strings.Builder
	if h.User != "" {
		b.WriteString(h.User + "@")
	}
	b.WriteString(bracketed(h.Name))
	if h.Port != 0 {
		b.WriteString(":" + strconv.Itoa(h.Port))
	}
	words := h.words()
	// A colon follows the port, even if the line has no devices.
	if h.Port != 0 || h.Devices.word() != "" {
		b.WriteString(":")
	}
	if len(words) > 0 {
		b.WriteString(" " + strings.Join(words, " "))
	}
	return b.String()
}

// words returns the part of the line after the address, as words.
func (h Host) words() []string {
	words := h.devices()
	if h.DataAddr != "" {
		words = append(words, "addr="+h.DataAddr)
	}
	if h.Interface != "" {
		words = append(words, "nic="+h.Interface)
	}
	for _, e := range h.Env {
		name, value, _ := strings.Cut(e, "=")
		words = append(words, name+"="+quotedValue(value))
	}
	return words
}

// devices returns the words that specify the host's devices on a line, for
// example "0,1" or "slots=4".
func (h Host) devices() []string {
	var words []string
	if word := h.Devices.word(); word != "" {
		words = append(words, word)
	}
	if h.Devices.Kind == Slots {
		words = append(words, "slots="+strconv.Itoa(h.Devices.Count))
	}
	if len(h.Devices.Excluded) > 0 {
		words = append(words, "exclude="+joinIDs(h.Devices.Excluded))
	}
	return words
}

// word returns the word for the devices after the colon, for example "0,1" or
// "cpu". AllGPUs and Slots have no such word; for these kinds word returns "".
func (d Devices) word() string {
	switch d.Kind {
	case GPUs:
		return joinIDs(d.IDs)
	case CPUs:
		if d.Count == 1 {
			return "cpu"
		}
		return "cpu*" + strconv.Itoa(d.Count)
	case ServerOnly:
		return "ps"
	default:
		return ""
	}
}

func bracketed(name string) string {
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}

// key returns a string that is equal for two hosts if and only if they are the
// same host: the name in lower case, or the address, followed by the port.
func (h Host) key() string {
	name := strings.ToLower(h.Name)
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.Unmap().String()
	}
	return name + " " + strconv.Itoa(cmp.Or(h.Port, defaultPort))
}
