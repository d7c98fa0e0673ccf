//go:build !linux

package limits

// processes: without /proc it is not known how many there are.
func processes() error { return nil }
