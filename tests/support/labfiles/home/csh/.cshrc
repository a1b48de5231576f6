set prompt = "%m> "; if ($?prompt) echo "welcome to csh"
