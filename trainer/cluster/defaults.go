package cluster

import "strconv"

// Interfaces returns the variables that name the network interface for data to PyTorch:
// for Gloo, NCCL and RPC. It returns none if no interface is known.
func (f Foreign) Interfaces() []string {
	if f.Interface == "" {
		return nil
	}
	nccl := f.Interface
	if f.Prefix {
		nccl = "=" + nccl // NCCL otherwise takes all interfaces whose names begin so
	}
	return []string{
		"GLOO_SOCKET_IFNAME=" + f.Interface,
		"NCCL_SOCKET_IFNAME=" + nccl,
		"TP_SOCKET_IFNAME=" + f.Interface,
	}
}

// Defaults returns the variables, as NAME=VALUE pairs, that a launcher sets only if
// neither the user nor the host has set them.
func (f Foreign) Defaults() []string {
	env := append([]string{"PYTHONUNBUFFERED=1"}, f.Interfaces()...)
	if f.Threads > 0 {
		env = append(env, "OMP_NUM_THREADS="+strconv.Itoa(f.Threads))
	}
	return env
}
