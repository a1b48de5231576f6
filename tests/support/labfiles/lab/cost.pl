# CPU of `sh -s <FILE`, with all that it starts and does not wait for: cost.pl ROUNDS FILE prints seconds a round.
my ($rounds, $file) = @ARGV;
my $prctl = `uname -m` =~ /x86_64/ ? 157 : 167;
syscall($prctl, 36, 1, 0, 0, 0) == 0 or die "prctl: $!";
for (1 .. $rounds) {
  system("sh -s <$file >/dev/null");
  1 while wait() > 0;
}
my (undef, undef, $user, $system) = times;
printf "%.4f\n", ($user + $system) / $rounds;
