package cluster

import "strconv"

// Interfaces returns the environment variables, as NAME=VALUE pairs, that tell
// PyTorch's Gloo, NCCL and RPC which network interface carries data. It
// returns none if the interface is not known.
func (f Foreign) Interfaces() []string {
	if f.Interface == "" {
		return nil
	}
	nccl := f.Interface
	if f.Prefix {
		nccl = "=" + nccl // NCCL uses all interfaces that begin with a name, except if "=" precedes the name
	}
	return []string{
		"GLOO_SOCKET_IFNAME=" + f.Interface,
		"NCCL_SOCKET_IFNAME=" + nccl,
		"TP_SOCKET_IFNAME=" + f.Interface,
	}
}

// Defaults returns the variables, as NAME=VALUE pairs, that the launcher sets
// only if neither the user nor the host has set them.
func (f Foreign) Defaults() []string {
	env := append([]string{"PYTHONUNBUFFERED=1"}, f.Interfaces()...)
	if f.Threads > 0 {
		env = append(env, "OMP_NUM_THREADS="+strconv.Itoa(f.Threads))
	}
	return env
}
