// Package flags checks flag values for several examples. Each function returns
// nil for a valid value, or an error that names the flag.
package flags

import (
	"fmt"
	"math"
)

// AtLeast returns an error if value is less than least.
func AtLeast(name string, value, least int) error {
	if value < least {
		return fmt.Errorf("--%s is %d: want at least %d", name, value, least)
	}
	return nil
}

// Rate returns an error unless value is a valid learning rate, which is
// positive.
func Rate(name string, value float64) error {
	if !(value > 0 && value <= math.MaxFloat32) {
		return fmt.Errorf("--%s is %v: want more than 0", name, value)
	}
	return nil
}

// Fraction returns an error unless value is at least 0 and less than 1.
func Fraction(name string, value float64) error {
	if !(value >= 0 && value < 1) {
		return fmt.Errorf("--%s is %v: want at least 0 and less than 1", name, value)
	}
	return nil
}
