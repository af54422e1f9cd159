package tree_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/tree"
)

func TestScreenReplacesWhatItDrew(t *testing.T) {
	t.Parallel()
	term := newTerminal(20)
	term.write("$ run\r\n")
	screen := tree.NewScreen(term)
	require.NoError(t, screen.Draw([]string{"one", "two", "three"}, 20))
	require.Equal(t, "$ run\none\ntwo\nthree\n", term.text())
	require.NoError(t, screen.Draw([]string{"1", "two again"}, 20))
	require.Equal(t, "$ run\n1\ntwo again\n", term.text())
	term.write("^C") // the terminal echoes what is typed
	require.NoError(t, screen.Draw([]string{"1", "2", "3", "4"}, 20))
	require.Equal(t, "$ run\n1\n2\n3\n4\n", term.text())
	require.NoError(t, screen.Clear(20))
	require.Equal(t, "$ run\n", term.text())
}

func TestScreenLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	term := newTerminal(10)
	screen := tree.NewScreen(term)
	require.NoError(t, screen.Draw([]string{strings.Repeat("x", 30)}, 10))
	require.Equal(t, "xxxxxxxxxx\n", term.text(), "nothing wraps while it draws")
	require.True(t, term.wraps)
	require.True(t, term.cursorOn)
}

func TestScreenFollowsATerminalThatGetsNarrower(t *testing.T) {
	t.Parallel()
	term := newTerminal(20)
	term.write("$ run\r\n")
	screen := tree.NewScreen(term)
	require.NoError(t, screen.Draw([]string{"\x1b[1m0123456789abcdefgh\x1b[0m", "short", "0123456789abcdefg"}, 20))
	term.narrow(6)
	require.NoError(t, screen.Draw([]string{"one", "two"}, 6))
	require.Equal(t, "$ run\none\ntwo\n", term.text())
}

func TestScreenDrawsBelowWhatItForgot(t *testing.T) {
	t.Parallel()
	term := newTerminal(20)
	screen := tree.NewScreen(term)
	require.NoError(t, screen.Draw([]string{"one", "two"}, 20))
	term.write("[1]+ Stopped\r\n")
	screen.Forget()
	require.NoError(t, screen.Draw([]string{"three"}, 20))
	require.Equal(t, "one\ntwo\n[1]+ Stopped\nthree\n", term.text())
}
