// Package flags has the checks of flags that several examples share. Each
// returns an error that names the flag, or nil.
package flags

import (
	"fmt"
	"math"
)

// AtLeast wants least or more.
func AtLeast(name string, value, least int) error {
	if value < least {
		return fmt.Errorf("--%s is %d: want at least %d", name, value, least)
	}
	return nil
}

// Rate wants a learning rate.
func Rate(name string, value float64) error {
	if !(value > 0 && value <= math.MaxFloat32) {
		return fmt.Errorf("--%s is %v: want more than 0", name, value)
	}
	return nil
}

// Fraction wants at least 0 and less than 1.
func Fraction(name string, value float64) error {
	if !(value >= 0 && value < 1) {
		return fmt.Errorf("--%s is %v: want at least 0 and less than 1", name, value)
	}
	return nil
}
